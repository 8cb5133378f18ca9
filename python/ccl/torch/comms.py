"""Backend of torchcomms: ``torchcomms.new_comm("ccl_comm", device, name)``.

torchcomms imports this module by its entry point, or a program does.
"""

from __future__ import annotations

import os
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torchcomms

from .._errors import InvalidUsageError, NotSupportedError
from . import _devices
from ._group import NAME, ProcessGroup

__all__ = ["Backend"]

# In the order in which torchcomms looks for them.
_LAUNCHERS = (
    ("TORCHCOMM_RANK", "TORCHCOMM_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
)


def _rank_and_ranks() -> tuple[int, int]:
    for names in _LAUNCHERS:
        if all(name in os.environ for name in names):
            return int(os.environ[names[0]]), int(os.environ[names[1]])
    raise InvalidUsageError(
        "the rank and the number of ranks are not known; set TORCHCOMM_RANK and TORCHCOMM_SIZE, or use a "
        "launcher (torchrun, mpirun)"
    )


def _store(name: str, rank: int, ranks: int, timeout: timedelta) -> Any:
    """Returns the store at MASTER_ADDR and MASTER_PORT, which rank 0 or torchrun serves."""
    for variable in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(variable):
            raise InvalidUsageError(
                f"communicator {name!r} has no store, and {variable} is not set; set MASTER_ADDR and "
                "MASTER_PORT, or pass store="
            )
    c10d: Any = dist
    store, _, _ = next(c10d.rendezvous("env://", rank, ranks, timeout=timeout))
    return store


def _operation(op: Any) -> Any:
    name = op.type.name
    if name == "PREMUL_SUM":
        raise NotSupportedError(
            "torchcomms gives backends in Python no factor of a premultiplied sum; multiply the tensor, "
            "and take SUM"
        )
    return getattr(dist.ReduceOp, name)


class Backend(torchcomms.TorchCommBackend):
    """Communicator of torchcomms, on the group of the backend of torch.distributed.

    torchcomms calls its methods. It passes backends in Python neither batches of messages, windows nor
    the options of single calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self._group: ProcessGroup | None = None
        self._name = ""

    # Creation and end.

    def init(self, device: Any, name: str, options: Any) -> None:
        rank, ranks = _rank_and_ranks()
        store = options.store or _store(name, rank, ranks, options.timeout)
        c10d: Any = dist
        group = ProcessGroup(c10d.PrefixStore(f"{NAME}/{name}/", store), rank, ranks, options.timeout, name)
        if _devices.has_gpu(device):
            group.eager_connect_single_device(device)
        self._group, self._name = group, name

    def split(self, ranks: list[int], name: str, options: Any) -> Backend | None:
        group = self._on()
        part = group.split_group(list(ranks), options.timeout, group_name=name)
        if part is None:
            return None
        made = Backend()
        made._group, made._name = part, name
        return made

    def finalize(self) -> None:
        self._on().shutdown()

    def _on(self) -> ProcessGroup:
        if self._group is None:
            raise InvalidUsageError("this communicator has not been created; use torchcomms.new_comm")
        return self._group

    def get_rank(self) -> int:
        return self._on().rank_

    def get_size(self) -> int:
        return self._on().size_

    def get_backend_name(self) -> str:
        return NAME

    def get_comm_name(self) -> str:
        return self._name

    # Messages. They have no tags.

    def send(self, tensor: torch.Tensor, dst: int, async_op: bool) -> Any:
        return _pending(self._on().send([tensor], dst), async_op)

    def recv(self, tensor: torch.Tensor, src: int, async_op: bool) -> Any:
        return _pending(self._on().recv([tensor], src), async_op)

    # Reductions.

    def all_reduce(self, tensor: torch.Tensor, op: Any, async_op: bool) -> Any:
        return _pending(self._on().allreduce([tensor], _call(async_op, op=op)), async_op)

    def reduce(self, tensor: torch.Tensor, root: int, op: Any, async_op: bool) -> Any:
        return _pending(self._on().reduce([tensor], _call(async_op, root, op)), async_op)

    def reduce_scatter(self, output: Any, input_list: list[torch.Tensor], op: Any, async_op: bool) -> Any:
        return _pending(self._on().reduce_scatter([output], [input_list], _call(async_op, op=op)), async_op)

    reduce_scatter_v = reduce_scatter

    def reduce_scatter_single(self, output: Any, input: Any, op: Any, async_op: bool) -> Any:
        return _pending(self._on()._reduce_scatter_base(output, input, _call(async_op, op=op)), async_op)

    # Movements.

    def broadcast(self, tensor: torch.Tensor, root: int, async_op: bool) -> Any:
        return _pending(self._on().broadcast([tensor], _call(async_op, root)), async_op)

    def all_gather(self, tensor_list: list[torch.Tensor], tensor: torch.Tensor, async_op: bool) -> Any:
        return _pending(self._on().allgather([tensor_list], [tensor], _call(async_op)), async_op)

    all_gather_v = all_gather

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, async_op: bool) -> Any:
        return _pending(self._on()._allgather_base(output, input, _call(async_op)), async_op)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, async_op: bool) -> Any:
        return self.all_to_all_v_single(output, input, [], [], async_op)

    def all_to_all_v_single(
        self, output: torch.Tensor, input: torch.Tensor, output_split_sizes: list[int],
        input_split_sizes: list[int], async_op: bool,
    ) -> Any:  # fmt: skip
        work = self._on().alltoall_base(output, input, output_split_sizes, input_split_sizes, _call(async_op))
        return _pending(work, async_op)

    def all_to_all(self, output_list: list[Any], input_list: list[Any], async_op: bool) -> Any:
        return _pending(self._on().alltoall(output_list, input_list, _call(async_op)), async_op)

    def scatter(self, output: torch.Tensor, input_list: list[Any], root: int, async_op: bool) -> Any:
        given = [input_list] if self.get_rank() == root else []
        return _pending(self._on().scatter([output], given, _call(async_op, root)), async_op)

    def gather(self, output_list: list[Any], input: torch.Tensor, root: int, async_op: bool) -> Any:
        into = [output_list] if self.get_rank() == root else []
        return _pending(self._on().gather(into, [input], _call(async_op, root)), async_op)

    def barrier(self, async_op: bool) -> Any:
        return _pending(self._on().barrier(_call(async_op)), async_op)


def _call(async_op: bool, root: int = 0, op: Any = None) -> SimpleNamespace:
    """Returns the options of a call, as those of torch.distributed."""
    return SimpleNamespace(asyncOp=async_op, rootRank=root, reduceOp=None if op is None else _operation(op))


def _pending(work: Any, async_op: bool) -> Any:
    """Returns `work`, or None once it is done, which torchcomms takes as completed."""
    if async_op:
        return work
    work.wait()
    return None


torchcomms.register_backend(NAME, Backend)
