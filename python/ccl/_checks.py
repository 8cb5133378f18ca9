"""Checks of the arguments of a communicator's calls, before a rank waits for another."""

from __future__ import annotations

import math
import operator
from typing import Any

from . import _buffers, _core
from ._buffers import CPU, Buffer
from ._errors import InvalidArgumentError
from ._functor import Functor

_REDUCTIONS = ("sum", "prod", "min", "max", "avg")


def integer(value: Any, what: str) -> int:
    """Returns `value`, which `what` names in errors, if it is an integer of 32 bits."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{what} is {value!r}, a {type(value).__name__}; give an integer")
    number = operator.index(value)
    if not -(2**31) <= number < 2**31:
        raise InvalidArgumentError(f"{what} is {number}; give an integer of 32 bits")
    return number


def integers(values: Any, what: str) -> list[int]:
    """Returns `values`, which `what` names in errors, if they are integers."""
    try:
        return [operator.index(value) for value in values]
    except TypeError:
        raise TypeError(
            f"{what} is {values!r}, a {type(values).__name__}; give a sequence of integers"
        ) from None


class Checks:
    """A rank of an engine, and the checks of what its calls are given."""

    _core: Any
    _device: int

    @property
    def rank(self) -> int:
        """This rank, from 0 to ``ranks - 1``."""
        return int(self._core.rank)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return int(self._core.ranks)

    def _read(self, array: Any, what: str) -> Buffer:
        return self._on_device(_buffers.read(array, what), what)

    def _write(self, array: Any, what: str) -> Buffer:
        return self._on_device(_buffers.write(array, what), what)

    def _on_device(self, buffer: Buffer, what: str) -> Buffer:
        if buffer.device not in (self._device, _buffers.ANYWHERE):
            where = ["in CPU memory" if d == CPU else f"on CUDA device {d}"
                     for d in (buffer.device, self._device)]  # fmt: skip
            raise InvalidArgumentError(
                f"{what} is {where[0]}, and rank {self.rank} of this communicator works {where[1]}; "
                "copy it, or create a communicator with device="
            )
        return buffer

    def _result(
        self, out: Any, like: Any, send: Buffer, shape: tuple[int, ...]
    ) -> tuple[Any, Buffer]:
        """Returns the array of the result, and its memory. Creates the array if `out` is None."""
        if out is None:
            out = _buffers.empty(like, send, shape, "out")
            return out, self._read(out, "out")
        recv = self._write(out, "out")
        self._check_type(send, recv, "out")
        count = math.prod(shape)
        if recv.elements != count:
            raise InvalidArgumentError(
                f"out has {recv.elements} elements on rank {self.rank}, and the call writes {count} "
                f"(data has {send.elements}, and there are {self.ranks} ranks)"
            )
        return out, recv

    def _check_type(self, send: Buffer, recv: Buffer, what: str) -> None:
        if recv.type != send.type:
            names = [_core.types[b.type][0] for b in (send, recv)]
            raise InvalidArgumentError(
                f"data has elements of {names[0]} and {what} of {names[1]} on rank {self.rank}; "
                "both must be the same"
            )

    def _part(self, send: Buffer, out: Any) -> tuple[int, ...]:
        """Returns the shape of one of `ranks` equal parts of `send`."""
        extent = send.shape[0] if send.shape else 1
        if extent % self.ranks == 0 and send.shape:
            return (extent // self.ranks, *send.shape[1:])
        if out is not None and send.elements % self.ranks == 0:
            return (send.elements // self.ranks,)
        raise InvalidArgumentError(
            f"data of shape {send.shape} cannot be divided among {self.ranks} ranks; its first "
            "extent must be a multiple of that number"
        )

    def _check_op(self, op: str | Functor, send: Buffer) -> None:
        if send.boolean:
            raise InvalidArgumentError(
                f"data has elements of bool on rank {self.rank}, which only move; view them as uint8 "
                "and take max (or) or min (and)"
            )
        if not isinstance(op, Functor) and not (isinstance(op, str) and op in _REDUCTIONS):
            raise InvalidArgumentError(
                f"there is no reduction {op!r}; take {', '.join(_REDUCTIONS)} or a ccl.Functor"
            )

    def _check_rank(self, rank: int, what: str) -> None:
        if not hasattr(rank, "__index__"):
            raise TypeError(f"{what} is {rank!r}, a {type(rank).__name__}; give a rank as an integer")
        if not 0 <= rank < self.ranks:
            raise InvalidArgumentError(
                f"{what} {rank} is no rank of this communicator (it has ranks 0 to "
                f"{self.ranks - 1})"
            )

    def _check_counts(self, name: str, values: list[int]) -> None:
        if len(values) != self.ranks or any(value < 0 for value in values):
            raise InvalidArgumentError(
                f"{name} is {values} on rank {self.rank}; it must have {self.ranks} numbers, one "
                "for each rank, none of them negative"
            )
