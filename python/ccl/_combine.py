"""Reductions by a `Functor` on GPUs: calls of the library move the elements, and kernels combine them."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING, Any, Iterator

from . import _core, _cuda
from ._cuda import check, on_device, relaxed
from ._kernels import kernel_of

if TYPE_CHECKING:
    from ._functor import Functor

GATHERED_BYTES = 512 << 10  # of all ranks: up to there a call gathers, and each rank combines all
SCRATCH_BYTES = 64 << 20  # of a call, which works in parts of this size
_GRAIN_BYTES = 16  # of a rank's share, so that kernels load whole packets

_PINNED, _DEVICE = 1, 1  # CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE
_RELEASE_THRESHOLD = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD

_Pointer = ctypes.c_void_p


class _PoolProperties(ctypes.Structure):
    """`CUmemPoolProps` of CUDA's driver."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location_type", ctypes.c_int),
        ("location", ctypes.c_int),
        ("security", _Pointer),
        ("most_bytes", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    ]


_pools: dict[int, ctypes.c_void_p] = {}  # by device; their memory stays with the process


def _pool_of(cuda: ctypes.CDLL, device: int) -> ctypes.c_void_p:
    if device not in _pools:
        pool, keep = _Pointer(), ctypes.c_uint64(2**64 - 1)
        properties = _PoolProperties(_PINNED, 0, _DEVICE, device)
        text = f"a pool of memory cannot be made on CUDA device {device} ({{}})"
        with relaxed():
            check(cuda.cuMemPoolCreate(ctypes.byref(pool), ctypes.byref(properties)), text)
            check(cuda.cuMemPoolSetAttribute(pool, _RELEASE_THRESHOLD, ctypes.byref(keep)), text)
        _pools[device] = pool
    return _pools[device]


@contextlib.contextmanager
def scratch(device: int, bytes: int, stream: int) -> Iterator[int]:
    """Gives the block memory of the device, which `stream` may use until the block's end."""
    cuda = _cuda.driver()
    assert cuda is not None
    found = ctypes.c_uint64()
    text = f"there are no {bytes} bytes for a reduction on CUDA device {device} ({{}})"
    check(cuda.cuMemAllocFromPoolAsync(ctypes.byref(found), ctypes.c_size_t(bytes), _pool_of(cuda, device),
                                       _Pointer(stream)), text)  # fmt: skip
    try:
        yield found.value
    finally:
        cuda.cuMemFreeAsync(found, _Pointer(stream))


class Combination:
    """One reduction by a functor: of `count` elements of a type, on one rank's stream.

    Each rank combines one share of the elements, in the order of ranks. So all ranks get the same
    bits. Small calls skip that: ranks gather all elements and combine them by themselves.
    """

    def __init__(self, core: Any, functor: Functor, type: int, stream: int) -> None:
        self._core, self._type, self._stream = core, type, stream
        self._size: int = _core.types[type][1]
        self._device: int = core._device
        with on_device(self._device):  # before a kernel of the call waits for other ranks
            self._kernel = kernel_of(functor, type, self._device)

    def all_reduce(self, send: int, recv: int, count: int) -> None:
        with on_device(self._device):
            for at, share in self._parts(count):
                self._all_reduce_part(send + at * self._size, recv + at * self._size, share)
            at, rest = self._rest(count)
            if rest:
                with self._scratch(rest) as rows:
                    self._move("all_gather", send + at * self._size, rows, rest)
                    self._combine(rows, rest, recv + at * self._size)

    def _all_reduce_part(self, send: int, recv: int, share: int) -> None:
        mine = recv + self._core.rank * share * self._size
        with self._scratch(share) as rows:
            self._move("all_to_all", send, rows, share)
            self._combine(rows, share, mine)
        self._move("all_gather", mine, recv, share)

    def reduce(self, send: int, recv: int, count: int, root: int) -> None:
        is_root = self._core.rank == root
        with on_device(self._device):
            for at, share in self._parts(count):
                with self._scratch(share) as rows:
                    self._move("all_to_all", send + at * self._size, rows, share)
                    self._combine(rows, share, rows)  # each element is read before it is written
                    self._move("gather", rows, recv + at * self._size if is_root else 0, share, root)
            at, rest = self._rest(count)
            if rest:
                with self._scratch(rest) if is_root else contextlib.nullcontext(0) as rows:
                    self._move("gather", send + at * self._size, rows, rest, root)
                    if is_root:
                        self._combine(rows, rest, recv + at * self._size)

    def reduce_scatter(self, send: int, recv: int, count: int) -> None:
        ranks, size = self._core.ranks, self._size
        most = max(1, SCRATCH_BYTES // (ranks * size * _GRAIN_BYTES) * _GRAIN_BYTES)
        with on_device(self._device):
            for at in range(0, count, most):
                part = min(most, count - at)
                with self._scratch(part) as rows:
                    if part == count:
                        self._move("all_to_all", send, rows, count)
                    else:
                        self._messages(send + at * size, count, rows, part)
                    self._combine(rows, part, recv + at * size)

    def _messages(self, send: int, stride: int, rows: int, count: int) -> None:
        """Exchanges a part of each rank's elements."""
        messages = []
        for peer in range(self._core.ranks):
            messages.append((True, send + peer * stride * self._size, count, self._type, peer))
            messages.append((False, rows + peer * count * self._size, count, self._type, peer))
        self._core.messages(messages, self._stream)

    def _unit(self) -> int:
        """Returns the fewest elements of which all ranks have whole packets."""
        ranks: int = self._core.ranks
        return ranks * max(1, _GRAIN_BYTES // self._size)

    def _shared(self, count: int) -> int:
        """Returns how many elements go by shares."""
        if count * self._size * self._core.ranks <= GATHERED_BYTES:
            return 0
        return count // self._unit() * self._unit()

    def _parts(self, count: int) -> Iterator[tuple[int, int]]:
        """Yields the first element of each part that goes by shares, and the length of a share."""
        most = max(1, SCRATCH_BYTES // (self._unit() * self._size)) * self._unit()
        shared = self._shared(count)
        for at in range(0, shared, most):
            yield at, min(most, shared - at) // self._core.ranks

    def _rest(self, count: int) -> tuple[int, int]:
        """Returns the first element that does not go by shares, and how many there are."""
        shared = self._shared(count)
        return shared, count - shared

    def _scratch(self, row: int) -> contextlib.AbstractContextManager[int]:
        return scratch(self._device, self._core.ranks * row * self._size, self._stream)

    def _move(self, kind: str, send: int, recv: int, count: int, root: int = 0) -> None:
        getattr(self._core, kind)(send, recv, count, self._type, root, self._stream)

    def _combine(self, rows: int, row: int, out: int) -> None:
        self._kernel.combine(rows, row, self._core.ranks, out, row, self._stream)
