"""Functors of the program as reductions of torch.distributed."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist

from .._errors import InvalidArgumentError, NotSupportedError
from .._functor import Functor
from . import _devices
from ._tensors import NUMBERS


def reduce_op(functor: Functor) -> dist.ReduceOp:
    """Returns the reduction by a functor, for calls of torch.distributed.

    It takes the place of ``dist.ReduceOp.SUM`` in ``all_reduce``, ``reduce``, ``reduce_scatter`` and
    ``reduce_scatter_tensor`` of groups of the backend ``ccl_comm``. With another backend it is an
    error, or NaN.
    """
    if not isinstance(functor, Functor):
        raise InvalidArgumentError(f"{functor!r} is a {type(functor).__name__}; give a ccl.Functor")
    # The one reduction of PyTorch that carries a value of its caller: a factor, NaN to all but ccl.
    carrier: Any = torch.full((1,), math.nan, device="cpu")
    carrier.ccl_functor = functor
    c10d: Any = dist
    return c10d._make_nccl_premul_sum(carrier)


def functor_of(factor: Any) -> Functor | None:
    """Returns the functor that `reduce_op` has put into a reduction's factor."""
    return getattr(factor, "ccl_functor", None)


def combine(on: Any, kind: str, send: Any, recv: Any, functor: Functor, ranks: int, root: int) -> None:
    """Runs `kind` of the engine with a functor. `recv` is None where nothing is received."""
    number = NUMBERS.get(send.dtype)
    if number is None or send.dtype == torch.bool:
        raise NotSupportedError(
            f"{kind} of rank {on.rank} cannot combine elements of {send.dtype} by {functor!r}; view them "
            "as numbers that are not complex"
        )
    count = send.numel() // (ranks if kind == "reduce_scatter" else 1)
    to = recv.data_ptr() if recv is not None else 0
    compiled = functor if _devices.is_gpu(send) else functor._address(number)
    getattr(on.core, kind)(send.data_ptr(), to, count, number, functor.name, root, on.stream, compiled)
