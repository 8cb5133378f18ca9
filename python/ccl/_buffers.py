"""Memory of arrays: address, shape, type and device of what a caller passes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from . import _core
from ._errors import InvalidArgumentError

CPU = -1  # device of a buffer in CPU memory

# Names of the types as the C++ library has them, and their numbers and sizes.
_NUMBERS = {name: number for number, (name, _) in enumerate(_core.types)}
SIZES = [size for _, size in _core.types]
_ALIASES = {
    "float16": "half",
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "bool": "uint8",
}
_OF_NAME = dict(_NUMBERS) | {alias: _NUMBERS[name] for alias, name in _ALIASES.items()}
_LETTERS = {"i": "int", "u": "uint", "f": "float", "b": "bool"}
# DLPack's type codes. bool moves as bytes.
_DLPACK = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2"}
_KNOWN = (
    "int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64, float8_e4m3fn and "
    "float8_e5m2"
)


class Buffer(NamedTuple):
    """A contiguous run of elements, and the object that keeps its memory."""

    address: int
    shape: tuple[int, ...]
    elements: int
    type: int  # number of the type in _core.types
    device: int  # CUDA device, or CPU
    readonly: bool
    owner: Any
    stream: int | None = None  # CUDA stream that writes it, if its owner says so

    @property
    def bytes(self) -> int:
        return self.elements * SIZES[self.type]


def _type_of_name(name: str, what: str) -> int:
    number = _OF_NAME.get(name)
    if number is None:
        raise InvalidArgumentError(
            f"{what} has elements of type {name}, which ccl cannot move (it has {_KNOWN}); "
            "convert it, or view it as unsigned integers if it is only moved"
        )
    return number


def _check_strides(shape, strides, what: str) -> None:
    """`strides` are in elements; None is contiguous."""
    if strides is None or 0 in shape:
        return
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            raise InvalidArgumentError(
                f"{what} is not contiguous (shape {tuple(shape)}, strides {tuple(strides)} "
                "elements); pass a contiguous copy, as numpy.ascontiguousarray makes"
            )
        expected *= extent


def _from_interface(interface: dict, name: str, device: int, owner: Any, what: str) -> Buffer:
    """Reads `__array_interface__` or `__cuda_array_interface__`."""
    shape = tuple(interface["shape"])
    address, readonly = interface["data"]
    number = _type_of_name(name, what)
    strides = interface.get("strides")
    if strides is not None:
        size = SIZES[number]
        if any(stride % size for stride in strides):
            strides = tuple(stride / size for stride in strides)
        else:
            strides = tuple(stride // size for stride in strides)
    _check_strides(shape, strides, what)
    stream = interface.get("stream")
    return Buffer(
        address or 0, shape, math.prod(shape), number, device, bool(readonly), owner, stream
    )


def _name_of_typestr(typestr: str, what: str) -> str:
    if typestr[0] == ">":
        raise InvalidArgumentError(
            f"{what} has elements of foreign byte order ({typestr}); convert it first"
        )
    letter = _LETTERS.get(typestr[1])
    if letter is None:
        return typestr
    return "bool" if letter == "bool" else f"{letter}{8 * int(typestr[2:])}"


def _from_cuda(array: Any, what: str) -> Buffer:
    interface = array.__cuda_array_interface__
    typestr = interface["typestr"]
    # torch has no typestr for bfloat16 and float8 and raises; CuPy gives ml_dtypes' as raw bytes
    name = _name_of_typestr(typestr, what)
    if name.startswith(("<V", "|V")):
        name = str(getattr(array, "dtype", name))
    return _from_interface(interface, name, _device_of(array, interface), array, what)


def _device_of(array: Any, interface: dict) -> int:
    device = getattr(array, "device", None)
    for attribute in ("index", "id"):  # torch, CuPy
        found = getattr(device, attribute, None)
        if isinstance(found, int):
            return found
    return 0


def _from_numpy(array: Any, what: str) -> Buffer:
    dtype = array.dtype
    if dtype.hasobject or not (dtype.isnative or dtype.kind == "V"):
        raise InvalidArgumentError(
            f"{what} has elements of type {dtype.str} ({dtype}), which ccl cannot move (it has "
            f"{_KNOWN}); convert it first"
        )
    return _from_interface(array.__array_interface__, dtype.name, CPU, array, what)


def _from_dlpack(array: Any, what: str) -> Buffer:
    try:
        address, shape, strides, code, bits, kind, device, keep = _core.read_dlpack(array)
    except TypeError:
        raise InvalidArgumentError(
            f"{what} is a {type(array).__name__}, which is no array (no __array_interface__, "
            "__cuda_array_interface__, __dlpack__ or buffer); pass an array of NumPy, PyTorch, "
            "CuPy or JAX"
        ) from None
    name = _DLPACK.get(code, f"DLPack type {code} of {bits} bits")
    if name in ("int", "uint", "float", "bfloat"):
        name += str(bits)
    if kind not in (1, 2, 3, 13):  # CPU, CUDA, pinned memory, managed memory
        raise InvalidArgumentError(
            f"{what} is on a device of DLPack's kind {kind}; ccl reads CPU memory and CUDA devices"
        )
    _check_strides(shape, strides, what)
    number = _type_of_name(name, what)
    on = device if kind in (2, 13) else CPU
    immutable = type(array).__module__.startswith("jax")
    return Buffer(address, shape, math.prod(shape), number, on, immutable, keep)


def read(array: Any, what: str) -> Buffer:
    """Returns the memory of `array`, which is only read. `what` names it in errors."""
    if isinstance(array, Buffer):
        return array
    kind = type(array)
    if kind.__module__ == "numpy":
        return _from_numpy(array, what)
    if kind.__module__.startswith("torch"):  # without a gradient, which DLPack refuses
        array = array.detach()
    elif hasattr(kind, "__cuda_array_interface__"):
        return _from_cuda(array, what)
    elif hasattr(kind, "__array_interface__") and hasattr(array, "dtype"):
        return _from_numpy(array, what)
    elif not hasattr(kind, "__dlpack__"):
        return _from_view(array, what)
    return _from_dlpack(array, what)


def _from_view(array: Any, what: str) -> Buffer:
    """Reads the buffer protocol: bytearray, array.array, memoryview."""
    try:
        view = memoryview(array)
    except TypeError:
        return _from_dlpack(array, what)  # which says what is missing
    if not view.c_contiguous:
        raise InvalidArgumentError(
            f"{what} is not contiguous (shape {view.shape}, strides {view.strides} bytes); pass a "
            "contiguous copy"
        )
    letters = {"f": "float", "d": "float", "e": "float", "?": "bool", "c": "uint"}
    letters |= dict.fromkeys("bhilqn", "int") | dict.fromkeys("BHILQN", "uint")
    kind = letters.get(view.format.lstrip("@=<"), None)
    name = "bool" if kind == "bool" else f"{kind}{8 * view.itemsize}" if kind else view.format
    number = _type_of_name(name, what)
    address, keep = _core.address_of(view)
    shape = tuple(view.shape or ())
    return Buffer(address, shape, math.prod(shape), number, CPU, view.readonly, keep)


def write(array: Any, what: str) -> Buffer:
    """Returns the memory of `array`, which is written."""
    buffer = read(array, what)
    if buffer.readonly:
        raise InvalidArgumentError(f"{what} is read-only, and the call writes to it; pass a copy")
    return buffer


def empty(like: Any, buffer: Buffer, shape: tuple[int, ...], what: str) -> Any:
    """Returns a new array of the kind and type of `like`, on the same device."""
    module = type(like).__module__.partition(".")[0]
    if module == "numpy":
        import numpy

        return numpy.empty(shape, dtype=like.dtype)
    if module == "torch":
        return like.new_empty(shape)
    if module == "cupy":
        import cupy  # type: ignore[import-not-found]

        with like.device:
            return cupy.empty(shape, dtype=like.dtype)
    raise InvalidArgumentError(
        f"{what}: ccl makes no arrays of type {type(like).__name__} (it makes those of NumPy, "
        "PyTorch and CuPy); pass one as out="
    )
