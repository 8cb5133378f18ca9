"""All-reduces for inference engines: `ccl.vllm` and `ccl.sglang` are the plug-ins that use them."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Callable, Iterator

import torch
import torch.distributed as dist

from .._communicator import Communicator, UniqueId
from .._errors import InvalidUsageError
from . import _devices
from ._cpu_engine import CpuEngine
from ._gpu_engine import GpuEngine
from ._tensors import NUMBERS
from .ops import _add_rms_norm_on

__all__ = ["AllReduce"]

REDUCED = (torch.bfloat16, torch.float16, torch.float32)  # types of activations
NORMED = (torch.bfloat16, torch.float16)  # types of the fused kernel

_live: weakref.WeakSet[AllReduce] = weakref.WeakSet()


class AllReduce:
    """All-reduces of an engine's tensor-parallel group, out of place.

    It has the methods of the custom all-reduce of vLLM and SGLang. A call runs on the current stream
    and in CUDA graphs. Creating it is collective.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup
        Group of the same ranks, which carries the id of the communicator.
    device : torch.device
        GPU of this rank, or the CPU.
    max_size : int, optional
        Bytes of the largest tensor that a call takes. Default: no limit.
    """

    def __init__(self, group: Any, device: Any, max_size: int | None = None) -> None:
        c10d: Any = dist
        ranks: list[int] = c10d.get_process_group_ranks(group)

        def from_first(mine: Any) -> Any:
            carried = [mine]  # engines also call in inference mode, in which gloo gathers no objects
            c10d.broadcast_object_list(carried, src=ranks[0], group=group)
            return carried[0]

        self._init(from_first, ranks.index(dist.get_rank()), len(ranks), device, max_size)
        self.global_ranks: tuple[int, ...] | None = tuple(ranks)

    @classmethod
    def _of(cls, from_first: Callable[[Any], Any], rank: int, ranks: int, device: Any) -> AllReduce:
        """Returns one whose id `from_first` carries, which returns the object of rank 0."""
        made = cls.__new__(cls)
        made._init(from_first, rank, ranks, device, None)
        made.global_ranks = None
        return made

    def _init(
        self, from_first: Callable[[Any], Any], rank: int, ranks: int, device: Any, max_size: int | None
    ) -> None:
        id = from_first(UniqueId.create().bytes if rank == 0 else None)
        self.device, self.max_size, self.rank, self.world_size = torch.device(device), max_size, rank, ranks
        on_gpu = _devices.has_gpu(self.device)
        if on_gpu:
            self.device = _devices.numbered(self.device)
        comm = Communicator(UniqueId(id), rank, ranks, device=(self.device.index or 0) if on_gpu else None,
                            name="inference")  # fmt: skip
        self._on: Any = GpuEngine(comm, self.device, "inference") if on_gpu else CpuEngine(comm, "inference")
        self._fuses = False if not on_gpu else None  # None: by size
        self.disabled = False
        _live.add(self)

    def should_custom_ar(self, inp: torch.Tensor) -> bool:
        """True if a call takes the tensor. The answer is equal on all ranks, for tensors of one shape."""
        if self.disabled or inp.dtype not in REDUCED or not inp.is_contiguous():
            return False
        return self.max_size is None or inp.numel() * inp.element_size() <= self.max_size

    def custom_all_reduce(self, inp: torch.Tensor) -> torch.Tensor | None:
        """Returns the sum of all ranks, or None if the call does not take the tensor."""
        return self.all_reduce(inp) if self.should_custom_ar(inp) else None

    def all_reduce(self, inp: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the sum of all ranks, in `out` or in a new tensor. `out` may be `inp`."""
        self._check(inp)
        out, on = torch.empty_like(inp) if out is None else out, self._on
        to, number = out.data_ptr(), NUMBERS[inp.dtype]
        on.on_current(
            "all_reduce",
            lambda: on.core.all_reduce(inp.data_ptr(), to, inp.numel(), number, "sum", 0, on.stream),
        )
        return out

    def should_add_rms_norm(self, inp: torch.Tensor) -> bool:
        """True if `add_rms_norm` takes the tensor."""
        types = NORMED if self._fuses is None else REDUCED
        return self.should_custom_ar(inp) and inp.dtype in types and inp.shape[-1] % 8 == 0

    def add_rms_norm(
        self, inp: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float, *,
        out: torch.Tensor | None = None, residual_out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Returns RMSNorm of the sum of all ranks and the residual, and that sum.

        It is `ops.all_reduce_add_rms_norm` for a group of an engine.

        Parameters
        ----------
        out, residual_out : Tensor, optional
            Tensors for the results. `out` may be `inp`, and `residual_out` may be `inp` or `residual`.
        """
        self._check(inp)
        return _add_rms_norm_on(self._on, inp, residual, weight, epsilon, self._fuses, out, residual_out)

    def _check(self, inp: torch.Tensor) -> None:
        if self.disabled:
            raise InvalidUsageError("this all-reduce of an engine has been closed")
        if inp.device.type != self.device.type:
            raise InvalidUsageError(f"a tensor is on {inp.device}, and this all-reduce on {self.device}")

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        """Surrounds a capture of CUDA graphs. ccl takes any memory, so nothing is registered."""
        yield

    def close(self) -> None:
        """Ends the communicator, with the other ranks. A second call does nothing."""
        if not self.disabled:
            self.disabled = True
            _live.discard(self)
            if isinstance(self._on, GpuEngine):
                self._on.close("the engine has closed it", together=True)
            else:
                self._on.close("the engine has closed it", 10.0, together=True)


def _found(ranks: tuple[int, ...] | None, rank: int, world_size: int) -> AllReduce | None:
    """Returns the all-reduce of these global ranks; with None, one of this rank and number of ranks."""
    for one in _live:
        if (one.rank, one.world_size) == (rank, world_size) and ranks in (None, one.global_ranks):
            return one
    return None
