"""Operators of ccl beside those of torch.distributed, for eager code and ``torch.compile``.

``torch.ops.ccl`` has them with the name of a process group, as functional collectives take it. The
functions here take the group itself.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .._errors import InvalidArgumentError, NotSupportedError
from .._functor import Functor, by_key
from . import _devices
from ._functors import reduce_op
from ._group import ProcessGroup
from ._tensors import NUMBERS

__all__ = ["all_reduce_add_rms_norm", "all_reduce_by", "exchange_rows", "reduce_scatter_by"]

FUSED_BYTES = 2 << 20  # up to which the fused kernel is faster, on two H200

_library = torch.library.Library("ccl", "DEF")
_library.define(
    "all_reduce_add_rms_norm(Tensor data, Tensor? residual, Tensor? weight, float epsilon, "
    "bool? fuse, str group) -> (Tensor, Tensor)"
)
_library.define(
    "exchange_rows(Tensor data, Tensor send_counts, int send_stride, Tensor? send_rows, "
    "int recv_stride, str group) -> (Tensor, Tensor)"
)
_library.define("all_reduce_by(Tensor data, str functor, str group) -> Tensor")
_library.define("reduce_scatter_by(Tensor data, str functor, int ranks, str group) -> Tensor")


def _group_of(name: str) -> ProcessGroup:
    c10d: Any = dist.distributed_c10d
    group = c10d._resolve_process_group(name)
    if not isinstance(group, ProcessGroup):
        raise NotSupportedError(
            f"group {name!r} has the backend {dist.get_backend(group)}, and operators of ccl need a "
            'group of the backend "ccl_comm"'
        )
    return group


def _name_of(group: Any) -> str:
    some: Any = group or dist.group.WORLD
    return some.group_name


def _check(group: ProcessGroup, what: str, data: torch.Tensor, **others: torch.Tensor | None) -> None:
    for name, tensor in {"data": data, **others}.items():
        if tensor is None:
            continue
        if not _devices.is_gpu(tensor):
            raise NotSupportedError(
                f"{name} of {what} is on {tensor.device} on rank {group.rank_}; it runs on GPUs alone"
            )
        if not tensor.is_contiguous():
            raise InvalidArgumentError(
                f"{name} of {what} is not contiguous (strides {tensor.stride()}) on rank "
                f"{group.rank_}; pass {name}.contiguous()"
            )
    if not data.shape or not data.shape[-1]:
        raise InvalidArgumentError(
            f"data of {what} has shape {tuple(data.shape)} on rank {group.rank_}; its rows need elements"
        )


def _at(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _add_rms_norm(
    data: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None, epsilon: float,
    fuse: bool | None, name: str,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    group = _group_of(name)
    _check(group, "all_reduce_add_rms_norm", data=data, residual=residual, weight=weight)
    length = data.shape[-1]
    for what, tensor, shape in (("residual", residual, data.shape), ("weight", weight, (length,))):
        if tensor is not None and (tensor.shape != torch.Size(shape) or tensor.dtype != data.dtype):
            raise InvalidArgumentError(
                f"{what} of all_reduce_add_rms_norm has shape {tuple(tensor.shape)} and {tensor.dtype} "
                f"on rank {group.rank_}; it must have {tuple(shape)} and {data.dtype}"
            )
    on = group._on(data, *(t for t in (residual, weight) if t is not None))
    return _add_rms_norm_on(on, data, residual, weight, epsilon, fuse)


def _add_rms_norm_on(
    on: Any, data: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None,
    epsilon: float, fuse: bool | None, out: torch.Tensor | None = None, sums: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Runs the operator on an engine of GPUs. `out` may be `data`, and `sums` may be `residual` or `data`."""
    sums = torch.empty_like(data) if sums is None else sums
    length = data.shape[-1]
    if not (data.numel() * data.element_size() <= FUSED_BYTES if fuse is None else fuse):
        return _separate(on, data, residual, weight, epsilon, out, sums)
    out = torch.empty_like(data) if out is None else out
    at = out.data_ptr()
    on.on_current(
        "all_reduce_add_rms_norm",
        lambda: on.core.add_rms_norm(
            data.data_ptr(), data.numel() // length, length, _at(residual), sums.data_ptr(),
            at, _at(weight), epsilon, NUMBERS[data.dtype], on.stream,
        ),
    )  # fmt: skip
    return out, sums


def _separate(
    on: Any, data: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None,
    epsilon: float, out: torch.Tensor | None, sums: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    total = sums if residual is None or sums.data_ptr() != residual.data_ptr() else torch.empty_like(data)
    on.on_current(
        "all_reduce",
        lambda: on.core.all_reduce(data.data_ptr(), total.data_ptr(), data.numel(), NUMBERS[data.dtype],
                                   "sum", 0, on.stream),
    )  # fmt: skip
    if residual is not None:
        torch.add(total, residual, out=sums)
    normed = torch.nn.functional.rms_norm(sums, sums.shape[-1:], weight, epsilon)
    return normed if out is None else out.copy_(normed), sums


def _exchange_rows(
    data: torch.Tensor, send_counts: torch.Tensor, send_stride: int, send_rows: torch.Tensor | None,
    recv_stride: int, name: str,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    group = _group_of(name)
    _check(group, "exchange_rows", data=data, send_counts=send_counts, send_rows=send_rows)
    ranks, length = group.size_, data.shape[-1]
    needed = {"send_counts": (send_counts, ranks), "send_rows": (send_rows, ranks * send_stride)}
    for what, (tensor, count) in needed.items():
        if tensor is not None and (tensor.numel() != count or tensor.dtype != torch.int32):
            raise InvalidArgumentError(
                f"{what} of exchange_rows has {tensor.numel()} elements of {tensor.dtype} on rank "
                f"{group.rank_}; it must have {count} of torch.int32"
            )
    if send_rows is None and data.numel() != ranks * send_stride * length:
        raise InvalidArgumentError(
            f"data of exchange_rows has {data.numel() // length} rows on rank {group.rank_}, and "
            f"send_stride {send_stride} for {ranks} ranks needs {ranks * send_stride}; pass send_rows "
            "to name rows"
        )
    on = group._on(data, send_counts, *([] if send_rows is None else [send_rows]))
    arrived = data.new_empty(ranks * recv_stride, length)
    counts = torch.empty_like(send_counts)
    on.on_current(
        "exchange_rows",
        lambda: on.core.exchange_rows(
            data.data_ptr(), arrived.data_ptr(), length * data.element_size(), send_counts.data_ptr(),
            send_stride, _at(send_rows), counts.data_ptr(), recv_stride, on.stream,
        ),
    )  # fmt: skip
    return arrived, counts


def _options(options: Any, key: str) -> Any:
    functor = by_key.get(key)
    if functor is None:
        raise InvalidArgumentError(
            f"this process has no functor {key!r}; create its ccl.Functor before the operator runs"
        )
    options.reduceOp = reduce_op(functor)
    if hasattr(options, "asyncOp"):
        options.asyncOp = False
    return options


def _all_reduce_by(data: torch.Tensor, functor: str, name: str) -> torch.Tensor:
    group, options = _group_of(name), _options(dist.AllreduceOptions(), functor)
    out = data.clone(memory_format=torch.contiguous_format)
    group.allreduce([out], options).wait()
    return out


def _reduce_scatter_by(data: torch.Tensor, functor: str, ranks: int, name: str) -> torch.Tensor:
    group, options = _group_of(name), _options(dist.ReduceScatterOptions(), functor)
    if not data.dim() or data.shape[0] % group.size_:
        raise InvalidArgumentError(
            f"data of reduce_scatter_by has shape {tuple(data.shape)} on rank {group.rank_}; its first "
            f"extent must be a multiple of the number of ranks, {group.size_}"
        )
    out = _reduce_scatter_by_like(data, functor, ranks, name)
    group._reduce_scatter_base(out, data.contiguous(), options).wait()
    return out


def _all_reduce_by_like(data: torch.Tensor, functor: str, group: str) -> torch.Tensor:
    return torch.empty_like(data, memory_format=torch.contiguous_format)


def _reduce_scatter_by_like(data: torch.Tensor, functor: str, ranks: int, group: str) -> torch.Tensor:
    return data.new_empty(data.shape[0] // ranks, *data.shape[1:])


_library.impl("all_reduce_by", _all_reduce_by, "CompositeExplicitAutograd")
_library.impl("reduce_scatter_by", _reduce_scatter_by, "CompositeExplicitAutograd")
torch.library.register_fake("ccl::all_reduce_by", _all_reduce_by_like)
torch.library.register_fake("ccl::reduce_scatter_by", _reduce_scatter_by_like)
_library.impl("all_reduce_add_rms_norm", _add_rms_norm, "CompositeExplicitAutograd")
_library.impl("exchange_rows", _exchange_rows, "CompositeExplicitAutograd")


def _add_rms_norm_like(
    data: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None, epsilon: float,
    fuse: bool | None, group: str,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    return torch.empty_like(data), torch.empty_like(data)


def _exchange_rows_like(
    data: torch.Tensor, send_counts: torch.Tensor, send_stride: int, send_rows: torch.Tensor | None,
    recv_stride: int, group: str,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    ranks = send_counts.shape[0]
    return data.new_empty(ranks * recv_stride, data.shape[-1]), torch.empty_like(send_counts)


torch.library.register_fake("ccl::all_reduce_add_rms_norm", _add_rms_norm_like)
torch.library.register_fake("ccl::exchange_rows", _exchange_rows_like)


def all_reduce_add_rms_norm(
    data: torch.Tensor, residual: torch.Tensor | None = None, weight: torch.Tensor | None = None, *,
    epsilon: float = 1e-6, fuse: bool | None = None, group: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """All-reduce of the rows of a matrix, addition of a residual and RMSNorm.

    With ``h = sum over ranks + residual`` it returns ``h / sqrt(mean(h * h) + epsilon) * weight`` and
    ``h``, for the last dimension. It runs on the current stream.

    Parameters
    ----------
    data : Tensor
        Of bfloat16 or float16, on this rank's GPU, with the same shape on all ranks. The last
        dimension is a multiple of 8.
    residual, weight : Tensor, optional
        Of the type of `data`. `residual` has its shape, `weight` the extent of its last dimension.
    fuse : bool, optional
        True: one kernel, in which a row has the same bits whatever the number of rows. False: an
        all-reduce, and kernels of PyTorch. Default: one kernel up to 2 MiB, where it is faster.
    """
    return torch.ops.ccl.all_reduce_add_rms_norm(
        data, residual, weight, epsilon, fuse, _name_of(group)
    )


def all_reduce_by(data: torch.Tensor, functor: Functor, *, group: Any = None) -> torch.Tensor:
    """Combines the tensors of all ranks by a functor. Returns a new tensor.

    `ccl.torch.reduce_op` takes the functor into calls of torch.distributed, which work in place.
    """
    return torch.ops.ccl.all_reduce_by(data, functor._key, _name_of(group))


def reduce_scatter_by(data: torch.Tensor, functor: Functor, *, group: Any = None) -> torch.Tensor:
    """Combines the tensors of all ranks by a functor. Returns this rank's part.

    The first extent of `data` is a multiple of the number of ranks.
    """
    ranks = dist.get_world_size(group)
    return torch.ops.ccl.reduce_scatter_by(data, functor._key, ranks, _name_of(group))


def exchange_rows(
    data: torch.Tensor, send_counts: torch.Tensor, *, send_stride: int, recv_stride: int,
    send_rows: torch.Tensor | None = None, group: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Sends rows of a matrix to ranks, as many to each as the GPU finds in `send_counts`.

    The host does not wait for the counts. It runs on the current stream, and in CUDA graphs.

    Parameters
    ----------
    data : Tensor
        Rows to send. Those for rank p begin at row ``p * send_stride``.
    send_counts : Tensor
        Of int32, one for each rank: rows that it gets.
    send_stride, recv_stride : int
        Room for each rank in rows. `recv_stride` must be equal on all ranks.
    send_rows : Tensor, optional
        Of int32: for each place, the number of the row of `data` that is sent. Rows need 2048 bytes.

    Returns
    -------
    arrived, counts : Tensor
        Rows from rank p begin at row ``p * recv_stride`` of `arrived`; there are ``counts[p]``. The
        other rows of `arrived` are not written.
    """
    return torch.ops.ccl.exchange_rows(
        data, send_counts, send_stride, send_rows, recv_stride, _name_of(group)
    )
