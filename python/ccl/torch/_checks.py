"""Arguments of torch.distributed's operations: checks, and tensors as runs of memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Iterable

import torch
import torch.distributed as dist

from .._errors import InvalidArgumentError
from ._tensors import adjacent, extent


def seconds(options: Any) -> float | None:
    """Returns the limit of a call, or None."""
    timeout: timedelta | None = getattr(options, "timeout", None)
    if timeout is None or timeout <= timedelta(0):
        return None
    return timeout.total_seconds()


def blocks(options: Any) -> bool:
    """True if the caller waits for the call itself."""
    return options is not None and not getattr(options, "asyncOp", True)


def op_of(options: Any) -> Any:
    return dist.ReduceOp.SUM if options is None else options.reduceOp


def root_of(options: Any) -> int:
    return 0 if options is None else options.rootRank


def one_of(given: Any, what: str) -> Any:
    if not isinstance(given, (list, tuple)):
        return given
    if len(given) != 1:
        raise InvalidArgumentError(f"{what} takes one tensor or list, and has {len(given)}")
    return given[0]


def check_count(given: list[Any], ranks: int, what: str) -> None:
    if len(given) != ranks:
        raise InvalidArgumentError(
            f"{what} has {len(given)} tensors, and there are {ranks} ranks; give one for each rank"
        )


def check_pairs(outputs: list[Any], inputs: list[Any], what: str) -> None:
    if len(outputs) != len(inputs) or not outputs:
        raise InvalidArgumentError(
            f"{what} has {len(outputs)} outputs and {len(inputs)} inputs; give one output for each input"
        )


def check_type(one: torch.Tensor, other: torch.Tensor, what: str) -> None:
    if one.dtype != other.dtype:
        raise InvalidArgumentError(
            f"{what} has tensors of {one.dtype} and {other.dtype}; all must have one type"
        )


def in_order(tensor: torch.Tensor, *, read: bool = True) -> torch.Tensor:
    """Returns `tensor`, or memory for its elements in the order of its indices if it has another.

    Such a copy has the tensor's elements if `read`; `write_back` returns its elements.
    """
    if tensor.is_contiguous():
        return tensor
    if read:
        return tensor.contiguous()
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def writing(tensors: Iterable[torch.Tensor]) -> AbstractContextManager[None]:
    """Lets the block write to tensors without gradients, whatever the mode of their creation.

    Threads of a group have not the mode of the caller, and inference tensors are read-only without it.
    """
    inference = any(tensor.is_inference() for tensor in tensors)
    return torch.inference_mode() if inference else torch.no_grad()


def write_back(tensor: torch.Tensor, used: torch.Tensor) -> None:
    """Writes what `in_order` made for `tensor` into it."""
    if used is not tensor:
        with writing([tensor]):
            tensor.copy_(used)


def joined(parts: list[torch.Tensor]) -> torch.Tensor:
    """Returns the elements of all tensors in one run of memory."""
    if adjacent(parts):
        return parts[0].as_strided((sum(p.numel() for p in parts),), (1,))
    return torch.cat([part.reshape(-1) for part in parts])


class Parts:
    """Tensors to be written as one run of memory: themselves, if they are one, or a copy."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = tensors
        total = sum(t.numel() for t in tensors)
        self._own = adjacent(tensors)
        first = tensors[0]
        self.flat = first.as_strided((total,), (1,)) if self._own else first.new_empty(total)

    def counts(self) -> list[int]:
        return [extent(t)[0] for t in self._tensors]

    def write_back(self) -> None:
        if self._own:
            return
        at = 0
        with writing(self._tensors):
            for tensor in self._tensors:
                tensor.copy_(self.flat[at : at + tensor.numel()].view(tensor.shape))
                at += tensor.numel()
