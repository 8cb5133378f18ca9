"""Communicators of GPUs, through the C interface of ccl's own ``libnccl.so.2``.

`GpuCore` has the methods of `_core.Core`. Its streams are handles of CUDA streams.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from . import _core, _errors, nccl
from ._combine import Combination
from ._cuda import check_driver, on_device
from ._interrupt import blocking

if TYPE_CHECKING:
    from ._functor import Functor

# Numbers of NCCL's interface for those of _core.types.
_TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "half": 6, "float": 7,
    "double": 8, "bfloat16": 9, "f8e4m3": 10, "f8e5m2": 11,
}  # fmt: skip
_OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
_CODES = {1: "cuda", 2: "system", 3: "internal", 4: "invalid_argument", 5: "invalid_usage", 6: "peer_lost"}

_Pointer = ctypes.c_void_p
_Size = ctypes.c_size_t
_Int = ctypes.c_int


class _Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class _Options(ctypes.Structure):
    """`cclCommOptions_t` of src/nccl/abi/own_abi.hpp."""

    _fields_ = [
        ("size", _Size),
        ("timeout_s", ctypes.c_double),
        ("init_timeout_s", ctypes.c_double),
        ("memory_budget_bytes", ctypes.c_longlong),
        ("check", _Int),
        ("channels", _Int),
        ("name", ctypes.c_char_p),
        ("tune_file", ctypes.c_char_p),
    ]

    @classmethod
    def of(cls, given: dict[str, Any]) -> _Options:
        for name in ("timeout", "init_timeout", "memory_budget", "channels"):
            if given[name] is not None and not given[name] >= 0:  # a negative number means "as it is"
                raise _errors.InvalidArgumentError(
                    f"{name} is {given[name]}; give a number that is not negative, or None"
                )
        number = {k: -1 if given[k] is None else given[k] for k in
                  ("timeout", "init_timeout", "memory_budget", "check", "channels")}  # fmt: skip
        text = {k: given[k].encode() or None for k in ("name", "tune_file")}
        return cls(ctypes.sizeof(cls), number["timeout"], number["init_timeout"],
                   number["memory_budget"], int(number["check"]), number["channels"], text["name"],
                   text["tune_file"])  # fmt: skip


class _Rows(ctypes.Structure):
    """`cclCountedRows_t` of src/nccl/abi/own_abi.hpp."""

    _fields_ = [
        ("size", _Size),
        ("row_bytes", _Size),
        ("send_counts", _Pointer),
        ("send_stride", _Size),
        ("send_rows", _Pointer),
        ("recv_counts", _Pointer),
        ("recv_stride", _Size),
        ("send_side", _Pointer),
        ("recv_side", _Pointer),
        ("side_bytes", _Size),
    ]


_ARGUMENTS = {  # fmt: skip
    "cclCommInitRank": (ctypes.POINTER(_Pointer), _Int, _Id, _Int, ctypes.POINTER(_Options)),
    "cclAllReduceAddRmsNorm": (_Pointer, _Size, _Size, _Pointer, _Pointer, _Pointer, _Pointer,
                               ctypes.c_float, _Int, _Pointer, _Pointer),
    "cclExchangeRows": (_Pointer, _Pointer, ctypes.POINTER(_Rows), _Pointer, _Pointer),
    "cclCommStatus": (_Pointer,),
    "cclCommReport": (_Pointer, ctypes.c_char_p, _Size),
    "cclCommDump": (_Pointer, ctypes.c_char_p),
    "cclCommMemoryUsed": (_Pointer, ctypes.POINTER(ctypes.c_longlong)),
    "cclCommHost": (_Pointer, _Int, ctypes.c_char_p, _Size),
    "cclCommBarrier": (_Pointer,),
    "cclCommEnd": (_Pointer, ctypes.c_char_p),
    "ncclCommSplit": (_Pointer, _Int, _Int, ctypes.POINTER(_Pointer), _Pointer),
    "ncclCommShrink": (_Pointer, ctypes.POINTER(_Int), _Int, ctypes.POINTER(_Pointer), _Pointer, _Int),
    "ncclCommFinalize": (_Pointer,),
    "ncclCommDestroy": (_Pointer,),
    "ncclCommAbort": (_Pointer,),
    "ncclCommUserRank": (_Pointer, ctypes.POINTER(_Int)),
    "ncclCommCount": (_Pointer, ctypes.POINTER(_Int)),
    "ncclSend": (_Pointer, _Size, _Int, _Int, _Pointer, _Pointer),
    "ncclRecv": (_Pointer, _Size, _Int, _Int, _Pointer, _Pointer),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
}

# Collectives: their functions, and which arguments those take (LibraryCall::Form of gpu_calls.cpp).
_COLLECTIVES = {
    "all_reduce": ("ncclAllReduce", 0), "reduce_scatter": ("ncclReduceScatter", 0),
    "reduce": ("ncclReduce", 1), "all_gather": ("ncclAllGather", 2), "all_to_all": ("ncclAlltoAll", 2),
    "broadcast": ("ncclBroadcast", 3), "gather": ("ncclGather", 3), "scatter": ("ncclScatter", 3),
}  # fmt: skip

_library: ctypes.CDLL | None = None
_status_function = 0  # its address
_functions: dict[str, tuple[int, int]] = {}  # of collectives: addresses and forms, once loaded


def _load() -> ctypes.CDLL:
    global _library, _status_function
    if _library is None:
        # Its own handle, by its path: NVIDIA's library may serve a framework of this process.
        loaded: ctypes.CDLL = nccl._load()
        for name in (*_ARGUMENTS, *(name for name, _ in _COLLECTIVES.values())):
            if getattr(loaded, name, None) is None:
                raise _errors.NotSupportedError(
                    f"{nccl.library()} has no function {name}, so it is not the library of this ccl; "
                    "unset CCL_NCCL_LIBRARY, or name that of the same version"
                )
        for name, arguments in _ARGUMENTS.items():
            getattr(loaded, name).argtypes = arguments
        loaded.ncclGetLastError.restype = ctypes.c_char_p
        loaded.ncclGetLastError.argtypes = (_Pointer,)
        for kind, (name, form) in _COLLECTIVES.items():
            _functions[kind] = _address(getattr(loaded, name)), form
        _status_function = _address(loaded.cclCommStatus)
        _library = loaded
    return _library


def _address(function: Any) -> int:
    found = ctypes.cast(function, _Pointer).value
    assert found is not None
    return found


def _error(number: int, text: str) -> _errors.Error:
    """Returns the exception for a result of NCCL's interface and the text of ccl."""
    found = re.search(r"rank (\d+)(?: on (\S+))?: (\w+): ", text)
    code = found[3] if found and found[3] in _errors._by_code else _CODES.get(number, "internal")
    peer = re.search(r"\((?:.*, )?peer (\d+)", text)
    return _errors.create(
        code,
        text,
        int(found[1]) if found else -1,
        int(peer[1]) if peer else -1,
        0,
        (found[2] or "") if found else "",
        "",
    )


def _check(number: int, name: str) -> None:
    """Raises the error of a result of the library, in the thread that has called `name`."""
    if number not in (0, 7):  # success, in progress
        text = _load().ncclGetLastError(None) or b"no text"
        raise _error(number, f"{text.decode(errors='replace')} ({name})")


def _call(name: str, *arguments: Any) -> None:
    _check(getattr(_load(), name)(*arguments), name)


# NCCL's numbers by those of _core.types: of the type itself, if it is reduced, and of a type of the
# same size for data that only moves.
_REDUCED = [_TYPES.get(name) for name, _ in _core.types]
_MOVED = [_TYPES.get(name, _TYPES["half" if size == 2 else "int8"]) for name, size in _core.types]


def _reduced(number: int) -> int:
    found = _REDUCED[number]
    if found is None:
        raise _errors.NotSupportedError(
            f"GPUs reduce no elements of {_core.types[number][0]} (they have {', '.join(_TYPES)}); "
            "convert them"
        )
    return found


def _check_options(given: dict[str, Any], parent: dict[str, Any]) -> None:
    """Fails if a communicator that is derived from another has other options."""
    changed = [k for k, value in given.items() if value != parent[k] and k != "name"]
    if changed:
        raise _errors.NotSupportedError(
            f"a communicator of GPUs that is derived from another has its {changed[0]} "
            f"({parent[changed[0]]}); create one with {changed[0]}={given[changed[0]]} from an id"
        )


class GpuCore:
    """Rank of a communicator of GPUs."""

    def __init__(self, handle: int | None, device: int, given: dict[str, Any]) -> None:
        self._handle = handle
        self._device = device
        self._given = given
        self.rank = self._number("ncclCommUserRank")
        self.ranks = self._number("ncclCommCount")

    @classmethod
    def create(cls, ids: Sequence[bytes], rank: int, ranks: int, device: int, given: dict[str, Any]) -> GpuCore:
        if len(ids) != 1:
            raise _errors.NotSupportedError(
                f"a communicator of GPUs takes one id ({len(ids)} were given); pass the first"
            )
        _load()
        check_driver(device)
        id = _Id()
        ctypes.memmove(ctypes.byref(id), ids[0], 128)
        made = _Pointer()
        options = _Options.of(given)

        def init() -> None:
            with on_device(device):
                _call("cclCommInitRank", ctypes.byref(made), ranks, id, rank, ctypes.byref(options))

        blocking(init)  # there is nothing yet to abort
        return cls(made.value, device, given)

    def _number(self, name: str) -> int:
        found = _Int()
        _call(name, self._handle, ctypes.byref(found))
        return found.value

    def _comm(self) -> int:
        if self._handle is None:
            raise _errors.InvalidUsageError(
                f"rank {self.rank}'s communicator of CUDA device {self._device} has ended"
            )
        return self._handle

    def __del__(self) -> None:
        # As the interpreter ends, the rank departs with its process.
        if getattr(self, "_handle", None) is not None and not sys.is_finalizing():
            self.release()

    @property
    def memory_used(self) -> int:
        found = ctypes.c_longlong()
        _call("cclCommMemoryUsed", self._comm(), ctypes.byref(found))
        return found.value

    def host(self, rank: int) -> str:
        text = ctypes.create_string_buffer(256)
        _call("cclCommHost", self._comm(), rank, text, len(text))
        return text.value.decode(errors="replace")

    def report(self) -> str:
        text = ctypes.create_string_buffer(1 << 20)
        _call("cclCommReport", self._comm(), text, len(text))
        return text.value.decode(errors="replace")

    def dump(self, folder: str) -> None:
        _call("cclCommDump", self._comm(), folder.encode())

    def split(self, color: int, key: int, options: dict[str, Any]) -> GpuCore | None:
        _check_options(options, self._given)
        made = _Pointer()
        self._blocking("ncclCommSplit", self._comm(), color, key, ctypes.byref(made), None)
        return GpuCore(made.value, self._device, options) if made.value else None

    def shrink(self, excluded: list[int], abort_parent: bool, options: dict[str, Any]) -> GpuCore:
        _check_options(options, self._given)
        made = _Pointer()
        ranks = (_Int * len(excluded))(*excluded)
        self._blocking("ncclCommShrink", self._comm(), ranks, len(excluded), ctypes.byref(made), None,
                       int(abort_parent))  # fmt: skip
        return GpuCore(made.value, self._device, options)

    def barrier(self) -> None:
        self._blocking("cclCommBarrier", self._comm())

    def finalize(self) -> None:
        handle = self._comm()
        self._blocking("ncclCommFinalize", handle)
        with on_device(self._device):  # also in a thread that has no context yet
            _call("ncclCommDestroy", handle)
        self._handle = None

    def _blocking(self, name: str, *arguments: Any) -> None:
        """Makes a call that waits for other ranks. Ctrl-C ends it, and the communicator's calls."""

        def call() -> None:
            with on_device(self._device):
                _call(name, *arguments)

        blocking(call, lambda: self.abort("Ctrl-C interrupted a call (KeyboardInterrupt)"))

    def abort(self, why: str) -> None:
        if self._handle is not None:
            _call("cclCommEnd", self._handle, why.encode())

    def release(self) -> None:
        """Ends the communicator here. Waits for no rank."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _call("ncclCommAbort", handle)

    def status(self) -> None:
        result = _core.ask(_status_function, self._comm())
        if result:
            _check(result, "cclCommStatus")

    def launch(
        self, kind: str, send: int, recv: int, count: int, type: int, op: str, root: int, stream: int,
        side: Any = None,
    ) -> Any:  # fmt: skip
        """Queues a collective on `stream`; with `side`, a `_core.SideStream`, there and behind `stream`.

        Returns
        -------
        _core.Mark
            The end of the call on `side`; None without one.
        """
        function, form = _functions[kind]
        reduces = form < 2
        number = _reduced(type) if reduces else _MOVED[type]
        arguments = (function, form, self._comm(), send, recv, count, number, _OPS[op] if reduces else 0, root,
                     stream)  # fmt: skip
        if side is None:
            result, mark = _core.launch(*arguments), None
        else:
            result, mark = side.launch(*arguments)
        if result:
            _check(result, _COLLECTIVES[kind][0])
        return mark

    def all_reduce(
        self, send: int, recv: int, count: int, type: int, op: str, root: int, stream: int,
        functor: Functor | None = None,
    ) -> None:  # fmt: skip
        if functor is not None:
            Combination(self, functor, type, stream).all_reduce(send, recv, count)
            return
        self.launch("all_reduce", send, recv, count, type, op, root, stream)

    def reduce_scatter(
        self, send: int, recv: int, count: int, type: int, op: str, root: int, stream: int,
        functor: Functor | None = None,
    ) -> None:  # fmt: skip
        if functor is not None:
            Combination(self, functor, type, stream).reduce_scatter(send, recv, count)
            return
        self.launch("reduce_scatter", send, recv, count, type, op, root, stream)

    def reduce(
        self, send: int, recv: int, count: int, type: int, op: str, root: int, stream: int,
        functor: Functor | None = None,
    ) -> None:  # fmt: skip
        if functor is not None:
            Combination(self, functor, type, stream).reduce(send, recv, count, root)
            return
        self.launch("reduce", send, recv, count, type, op, root, stream)

    def all_gather(
        self, send: int, recv: int, count: int, type: int, root: int, stream: int
    ) -> None:
        self.launch("all_gather", send, recv, count, type, "", root, stream)

    def all_to_all(
        self, send: int, recv: int, count: int, type: int, root: int, stream: int
    ) -> None:
        self.launch("all_to_all", send, recv, count, type, "", root, stream)

    def broadcast(
        self, send: int, recv: int, count: int, type: int, root: int, stream: int
    ) -> None:
        self.launch("broadcast", send, recv, count, type, "", root, stream)

    def gather(
        self, send: int, recv: int, count: int, type: int, root: int, stream: int
    ) -> None:
        self.launch("gather", send, recv, count, type, "", root, stream)

    def scatter(
        self, send: int, recv: int, count: int, type: int, root: int, stream: int
    ) -> None:
        self.launch("scatter", send, recv, count, type, "", root, stream)

    def all_to_all_v(
        self, send: int, send_counts: list[int], send_offsets: list[int], recv: int,
        recv_counts: list[int], recv_offsets: list[int], type: int, stream: int,
    ) -> None:  # fmt: skip
        size = _core.types[type][1]
        messages = []
        for peer in range(self.ranks):
            messages.append((True, send + size * send_offsets[peer], send_counts[peer], type, peer))
            messages.append((False, recv + size * recv_offsets[peer], recv_counts[peer], type, peer))
        self.messages(messages, stream)

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Runs the calls of the block together, at its end."""
        _call("ncclGroupStart")
        try:
            yield
        finally:
            _call("ncclGroupEnd")

    def messages(self, messages: Sequence[tuple[bool, int, int, int, int]], stream: int) -> None:
        comm = self._comm()
        with self.group():
            for sends, address, count, number, peer in messages:
                name = "ncclSend" if sends else "ncclRecv"
                _call(name, address, count, _MOVED[number], peer, comm, stream)

    def add_rms_norm(
        self, data: int, rows: int, length: int, residual: int, sum: int, out: int, weight: int,
        epsilon: float, type: int, stream: int,
    ) -> None:  # fmt: skip
        """All-reduce, residual and RMSNorm of the rows of a matrix. Addresses may be 0."""
        _call("cclAllReduceAddRmsNorm", data, rows, length, residual, sum, out, weight, epsilon,
              _reduced(type), self._comm(), stream)  # fmt: skip

    def exchange_rows(
        self, send: int, recv: int, row_bytes: int, send_counts: int, send_stride: int, send_rows: int,
        recv_counts: int, recv_stride: int, stream: int, send_side: int = 0, recv_side: int = 0,
        side_bytes: int = 0,
    ) -> None:  # fmt: skip
        """Exchange of rows whose counts the stream reads."""
        rows = _Rows(ctypes.sizeof(_Rows), row_bytes, send_counts, send_stride, send_rows, recv_counts,
                     recv_stride, send_side, recv_side, side_bytes)  # fmt: skip
        _call("cclExchangeRows", send, recv, ctypes.byref(rows), self._comm(), stream)
