"""Memory and reductions of tensors, as the engine takes them."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch.distributed import ReduceOp

from .. import _buffers
from .._errors import InvalidArgumentError, NotSupportedError

_NAMES = {
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "uint8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "half",
    torch.bfloat16: "bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}
for _name, _ours in {
    "uint16": "uint16", "uint32": "uint32", "uint64": "uint64",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}.items():  # fmt: skip
    if hasattr(torch, _name):
        _NAMES[getattr(torch, _name)] = _ours
NUMBERS = {dtype: _buffers._NUMBERS[name] for dtype, name in _NAMES.items()}
BYTES = _buffers._NUMBERS["uint8"]
INT64 = _buffers._NUMBERS["int64"]

_OPS = {"SUM": "sum", "AVG": "avg", "PRODUCT": "prod", "MIN": "min", "MAX": "max"}
_OF_BOOL = {"SUM": "max", "PRODUCT": "min", "MIN": "min", "MAX": "max", "BAND": "min", "BOR": "max",
            "BXOR": "sum"}  # fmt: skip
BITWISE = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}


def dense(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Returns `tensor` if it is a run of memory, in any order of its dimensions."""
    if tensor.device.type not in ("cpu", "cuda"):
        raise NotSupportedError(
            f"{what} is on {tensor.device}, and this backend moves tensors in CPU memory and on CUDA "
            "devices; copy it to one of them"
        )
    if tensor.layout != torch.strided:
        raise NotSupportedError(f"{what} is sparse ({tensor.layout}); pass a dense tensor")
    if tensor.is_conj() or tensor.is_neg():
        kind = "conj" if tensor.is_conj() else "neg"
        raise NotSupportedError(
            f"{what} is a view that has not been computed (is_{kind}()); pass tensor.resolve_{kind}()"
        )
    if tensor.is_contiguous():
        return tensor
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape)):
        if extent != 1 and stride != expected:
            raise InvalidArgumentError(
                f"{what} is not contiguous (shape {tuple(tensor.shape)}, strides "
                f"{tensor.stride()}); pass tensor.contiguous()"
            )
        expected *= extent
    return tensor


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns the number of elements that move, and the number of their type."""
    number = NUMBERS.get(tensor.dtype)
    if number is not None:
        return tensor.numel(), number
    return tensor.numel() * tensor.element_size(), BYTES


def adjacent(tensors: list[torch.Tensor]) -> bool:
    """True if the tensors are one run of memory, in their order."""
    at, storage = tensors[0].data_ptr(), tensors[0].untyped_storage().data_ptr()
    for tensor in tensors:
        if not tensor.is_contiguous() or tensor.data_ptr() != at:
            return False
        if tensor.is_conj() or tensor.is_neg():  # its memory holds other numbers
            return False
        if tensor.untyped_storage().data_ptr() != storage:  # a neighbor by chance
            return False
        at += tensor.numel() * tensor.element_size()
    return True


_names: dict[Any, str] = {}  # of the kinds of reductions; PyTorch searches for a name anew each time


def operation(op: ReduceOp) -> tuple[str, Any]:
    """Returns the name of a reduction, and its factor or None."""
    kind: Any = getattr(op, "op", op)
    name = _names.get(kind)
    if name is None:
        name = _names[kind] = getattr(kind, "name", None) or str(kind).rpartition(".")[2]
    if name != "PREMUL_SUM":
        return name, None
    state: Any = op.__getstate__()
    return name, state[1]


def simple(op: ReduceOp) -> bool:
    """True if the engine's reduction is the whole call, whatever the type."""
    return operation(op)[0] in _OPS


class Reduction:
    """How the engine combines the elements of a type."""

    __slots__ = ("name", "number", "width", "odd")

    def __init__(self, op: str, dtype: torch.dtype, what: str) -> None:
        self.width = 1  # elements of the engine in one of the tensor
        self.odd = op == "BXOR" and dtype == torch.bool  # the lowest bit of the sum
        if dtype == torch.bool and op in _OF_BOOL:
            self.name, self.number = _OF_BOOL[op], BYTES
        elif dtype.is_complex and op in ("SUM", "AVG"):
            part = {torch.complex64: "float", torch.complex128: "double", torch.complex32: "half"}
            self.name, self.number, self.width = _OPS[op], _buffers._NUMBERS[part[dtype]], 2
        elif op in _OPS and dtype in NUMBERS and dtype != torch.bool:
            self.name, self.number = _OPS[op], NUMBERS[dtype]
        else:
            raise NotSupportedError(f"{what} cannot combine elements of {dtype} by {op}")


@functools.lru_cache(maxsize=None)
def _whole(name: str, dtype: torch.dtype, what: str) -> Reduction:
    return Reduction(name, dtype, what)


def whole(op: ReduceOp, what: str, *tensors: torch.Tensor) -> Reduction | None:
    """Returns the engine's reduction if it is the whole call; None if kernels of PyTorch belong to it."""
    name, factor = operation(op)
    if factor is not None or name not in _OPS:
        return None
    if not all(tensor.is_contiguous() for tensor in tensors):
        return None
    return _whole(name, tensors[0].dtype, what)


def check_bitwise(op: str, dtype: torch.dtype, what: str) -> None:
    if dtype.is_floating_point or dtype.is_complex:
        raise InvalidArgumentError(f"{what} cannot combine elements of {dtype} by {op}; take integers")


def check_sizes(given: int, needed: int, what: str) -> None:
    if given != needed:
        raise InvalidArgumentError(f"{what} has {given} elements; it must have {needed}")


def splits(tensor: torch.Tensor, given: list[int], ranks: int, what: str) -> list[int]:
    """Returns the number of elements for each rank. `given` counts rows; empty: equal parts."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not given:
        if rows % ranks:
            raise InvalidArgumentError(
                f"{what} has {rows} rows, which cannot be divided among {ranks} ranks; give split sizes"
            )
        return [tensor.numel() // ranks] * ranks
    if len(given) != ranks or sum(given) != rows or min(given) < 0:
        raise InvalidArgumentError(
            f"{what} has split sizes {list(given)}; they must be {ranks} numbers whose sum is the "
            f"number of its rows, {rows}"
        )
    row = math.prod(tensor.shape[1:])
    return [n * row for n in given]
