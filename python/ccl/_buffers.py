"""Memory of arrays: address, shape, type and device of what a caller passes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Sequence

from . import _core
from ._errors import InvalidArgumentError

CPU = -1  # device of a buffer in CPU memory
ANYWHERE = -2  # device of a buffer without elements that names none

# Names of the types as the C++ library has them, and their numbers and sizes.
_NUMBERS: dict[str, int] = {name: number for number, (name, _) in enumerate(_core.types)}
SIZES: list[int] = [size for _, size in _core.types]
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
_DLPACK = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool",
           10: "float8_e4m3fn", 12: "float8_e5m2"}  # fmt: skip
_KNOWN = (
    "int8 to int64, uint8 to uint64, bool, float16, bfloat16, float32, float64, float8_e4m3fn and "
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
    boolean: bool = False  # of bool, whose type here is that of bytes
    stream: int | None = None  # CUDA stream that writes it, if its owner says so
    tensor: Any = None  # of PyTorch, which is told of the streams that use its memory

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


def _check_strides(shape: Sequence[int], strides: Sequence[float] | None, what: str) -> None:
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


def _from_interface(interface: dict[str, Any], name: str, device: int, owner: Any, what: str) -> Buffer:
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
    return Buffer(
        address or 0, shape, math.prod(shape), number, device, bool(readonly), owner, name == "bool",
        interface.get("stream"),
    )  # fmt: skip


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
    if interface.get("mask") is not None:
        raise InvalidArgumentError(
            f"{what} has a mask, which ccl does not apply; pass an array without one, such as the "
            "filled data"
        )
    typestr = interface["typestr"]
    # torch has no typestr for bfloat16 and float8 and raises; CuPy gives ml_dtypes' as raw bytes
    name = _name_of_typestr(typestr, what)
    if name.startswith(("<V", "|V")):
        name = str(getattr(array, "dtype", name))
    return _from_interface(interface, name, _device_of(array, interface, what), array, what)


def _device_of(array: Any, interface: dict[str, Any], what: str) -> int:
    """Returns the number of the CUDA device that has the array's memory."""
    device = getattr(array, "device", None)
    for attribute in ("index", "id"):  # torch, CuPy
        found = getattr(device, attribute, None)
        if isinstance(found, int):
            return found
    if 0 in interface["shape"]:
        return ANYWHERE
    from ._cuda import device_at

    address = interface["data"][0]
    number = device_at(address)
    if number is None:
        raise InvalidArgumentError(
            f"{what} is a {type(array).__name__} at {address:#x}, which no CUDA device of this "
            "process has; pass an array of CUDA memory, or one with device.id"
        )
    return number


def _from_numpy(array: Any, what: str) -> Buffer:
    try:
        import numpy
    except ImportError:  # an array of another library with NumPy's interface
        held, fixed = array, False
    else:
        if isinstance(array, numpy.ma.MaskedArray):
            raise InvalidArgumentError(
                f"{what} is a masked array, whose mask ccl does not apply; pass its filled()"
            )
        # A scalar has no memory of its own, so it is copied.
        held, fixed = numpy.asarray(array), isinstance(array, numpy.generic)
    dtype = held.dtype
    if dtype.hasobject:
        raise InvalidArgumentError(
            f"{what} has elements of type {dtype}, which ccl cannot move (it has {_KNOWN}); convert it first"
        )
    if not (dtype.isnative or dtype.kind == "V"):
        raise InvalidArgumentError(
            f"{what} has elements of type {dtype.str}, in the byte order of another machine; pass "
            f'{what}.astype("{dtype.name}")'
        )
    buffer = _from_interface(held.__array_interface__, dtype.name, CPU, held, what)
    return buffer._replace(readonly=True) if fixed else buffer


def _from_plain_tensor(tensor: Any) -> Buffer | None:
    """Reads a contiguous tensor of PyTorch itself in less time than DLPack takes; None: it is no such one."""
    if type(tensor).__module__ not in ("torch", "torch.nn.parameter"):  # of a subclass
        return None
    name = str(tensor.dtype).removeprefix("torch.")
    number, place = _OF_NAME.get(name), tensor.device
    if number is None or place.type not in ("cpu", "cuda") or str(tensor.layout) != "torch.strided":
        return None
    if not tensor.is_contiguous():
        return None
    owner = tensor.detach()  # keeps the memory, if the tensor is given another
    try:
        address = owner.data_ptr()
    except RuntimeError:  # a transform of PyTorch's wraps it
        return None
    device = CPU if place.type == "cpu" else place.index
    return Buffer(address, tuple(owner.shape), owner.numel(), number, device, False, owner, name == "bool",
                  None, tensor)  # fmt: skip


def _from_dlpack(array: Any, what: str) -> Buffer:
    try:
        address, shape, strides, code, bits, lanes, kind, device, fixed, keep = _core.read_dlpack(
            array
        )
    except TypeError:
        refusal = _refusal(array)
        if refusal is not None:
            raise InvalidArgumentError(
                f"{what} is a {type(array).__name__} whose __dlpack__ fails "
                f"({type(refusal).__name__}: {refusal}); pass an array in CPU memory or on a CUDA device"
            ) from refusal
        raise InvalidArgumentError(
            f"{what} is a {type(array).__name__}, which is no array (no __array_interface__, "
            "__cuda_array_interface__, __dlpack__ or buffer); pass an array of NumPy, PyTorch, "
            "CuPy or JAX"
        ) from None
    if lanes != 1:
        raise InvalidArgumentError(
            f"{what} has vectors of {lanes} lanes as elements, which ccl cannot move; view it as an "
            "array of scalars"
        )
    name = _DLPACK.get(code, f"DLPack type {code} of {bits} bits")
    if name in ("int", "uint", "float", "bfloat", "complex"):
        name += str(bits)
    if kind not in (1, 2, 3, 13):  # CPU, CUDA, pinned memory, managed memory
        raise InvalidArgumentError(
            f"{what} is on a device of DLPack's kind {kind}; ccl reads CPU memory and CUDA devices"
        )
    _check_strides(shape, strides, what)
    number = _type_of_name(name, what)
    on = device if kind in (2, 13) else CPU
    fixed = fixed or _is_of(array, "jax", "jaxlib")
    return Buffer(address, shape, math.prod(shape), number, on, fixed, keep, name == "bool")


def _refusal(array: Any) -> Exception | None:
    """Returns the error with which an array refuses to be exported. None: it has no __dlpack__."""
    if hasattr(array, "__dlpack__"):
        try:
            array.__dlpack__()
        except Exception as error:  # noqa: BLE001  that of another library
            return error
    return None


def _is_of(array: Any, *modules: str) -> bool:
    """True if the class of `array`, or a base of it, is one of these modules'."""
    return any(base.__module__.partition(".")[0] in modules for base in type(array).__mro__)


def read(array: Any, what: str) -> Buffer:
    """Returns the memory of `array`, which is only read. `what` names it in errors."""
    if isinstance(array, Buffer):
        return array
    if _is_of(array, "numpy"):
        return _from_numpy(array, what)
    if _is_of(array, "torch"):  # without a gradient, which DLPack refuses
        if array.is_neg():  # DLPack gives its memory, in which the sign is another
            raise InvalidArgumentError(
                f"{what} is a view that has not been computed (is_neg()); pass tensor.resolve_neg()"
            )
        return _from_plain_tensor(array) or _from_dlpack(array.detach(), what)._replace(tensor=array)
    if _is_of(array, "jax", "jaxlib"):
        return _from_dlpack(array, what)
    # Not of the class: a class of arrays on both the CPU and GPUs has the attribute on GPUs alone.
    if hasattr(array, "__cuda_array_interface__"):
        return _from_cuda(array, what)
    if hasattr(array, "__array_interface__") and hasattr(array, "dtype"):
        return _from_numpy(array, what)
    if not hasattr(array, "__dlpack__"):
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
    fixed, boolean = view.readonly, kind == "bool"
    return Buffer(address, shape, math.prod(shape), number, CPU, fixed, keep, boolean)


def write(array: Any, what: str) -> Buffer:
    """Returns the memory of `array`, which is written."""
    buffer = read(array, what)
    if buffer.readonly:
        raise InvalidArgumentError(f"{what} is read-only, and the call writes to it; pass a copy")
    return buffer


def empty(like: Any, buffer: Buffer, shape: tuple[int, ...], what: str) -> Any:
    """Returns a new array of the kind and type of `like`, on the same device."""
    if _is_of(like, "numpy"):
        import numpy

        return numpy.empty(shape, dtype=like.dtype)
    if _is_of(like, "torch"):
        return like.new_empty(shape)
    if _is_of(like, "cupy"):
        import cupy

        with like.device:
            return cupy.empty(shape, dtype=like.dtype)
    raise InvalidArgumentError(
        f"{what}: ccl makes no arrays of type {type(like).__name__} (it makes those of NumPy, "
        "PyTorch and CuPy); pass one as out="
    )
