"""Kernels that combine elements by a `Functor`, compiled by CUDA's run-time compiler (NVRTC)."""

from __future__ import annotations

import ctypes
import functools
import os
import sysconfig
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Iterable, Iterator

from . import _core, _cuda
from ._cuda import check, on_device, relaxed
from ._errors import CompileError, NotSupportedError, create
from ._functor import combined_type

if TYPE_CHECKING:
    from ._functor import Functor

_Pointer = ctypes.c_void_p
_Int = ctypes.c_int
_THREADS = 256  # of a block
_BLOCKS_PER_PROCESSOR = 2
# Attributes of a device, CUdevice_attribute.
_PROCESSORS, _MAJOR, _MINOR = 16, 75, 76

# Storage of elements that are combined in another type, and the format's mantissa bits, bias, and
# largest finite code. Codes above that are infinities and NaN.
_NARROW = {
    "half": ("unsigned short", 10, 15, 0x7BFF, False),
    "bfloat16": ("unsigned short", 7, 127, 0x7F7F, False),
    "f8e4m3": ("unsigned char", 3, 7, 0x7E, True),
    "f8e5m2": ("unsigned char", 2, 15, 0x7B, True),
}

# What a source may include without CUDA's C++ library.
_CSTDINT = """#pragma once
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
}
"""
_CSTDDEF = """#pragma once
namespace std {
using size_t = decltype(sizeof(0));
using ptrdiff_t = decltype((char*)0 - (char*)0);
}
"""
_ALGORITHM = """#pragma once
namespace std {
template <class T> constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> constexpr const T& clamp(const T& v, const T& low, const T& high) {
  return v < low ? low : high < v ? high : v;
}
}
"""
_CMATH = """#pragma once
namespace std {
using ::abs; using ::fabs; using ::sqrt; using ::cbrt; using ::hypot; using ::pow; using ::exp; using ::exp2;
using ::expm1; using ::log; using ::log2; using ::log10; using ::log1p; using ::sin; using ::cos; using ::tan;
using ::asin; using ::acos; using ::atan; using ::atan2; using ::sinh; using ::cosh; using ::tanh; using ::fma;
using ::fmin; using ::fmax; using ::fdim; using ::fmod; using ::floor; using ::ceil; using ::trunc; using ::round;
using ::rint; using ::copysign; using ::isnan; using ::isinf; using ::isfinite; using ::signbit; using ::erf;
}
"""
_ALONE = {"cstdint": _CSTDINT, "stdint.h": _CSTDINT, "cstddef": _CSTDDEF, "algorithm": _ALGORITHM,
          "cmath": _CMATH, "math.h": _CMATH}  # fmt: skip
_OF_LIBRARY = ("array", "bit", "complex", "concepts", "functional", "limits", "numeric", "optional", "tuple",
               "type_traits", "utility")  # fmt: skip

_KERNEL = """
#line 1 "ccl: kernel of the functor"
namespace ccl_kernel_ {
using Functor = ::@NAME@;
using Value = @TYPE@;
using Stored = @STORED@;
template <class F>
constexpr bool commutes() {
  if constexpr (requires { F::commutative; }) return F::commutative;
  return true;
}
template <class F, class V>
constexpr bool combines = requires(const F& f, const V& a, V& out) { out = f(a, a); };
static_assert(__is_empty(Functor),
              "ccl: @NAME@ must be a struct without data members; write its values into its operator");
static_assert(combines<Functor, Value>,
              "ccl: @NAME@ must have: @TYPE@ operator()(const @TYPE@&, const @TYPE@&) const");
static_assert(commutes<Functor>(),
              "ccl: @NAME@ states that it is not commutative, which functors from Python must be");
@CONVERSIONS@
constexpr int pack_size = 16 / sizeof(Stored);
struct alignas(16) Pack {
  Stored of[pack_size];
};
}  // namespace ccl_kernel_

// Combines element i of each row, in the order of rows. `stride` is the distance of rows in elements.
extern "C" __global__ void __launch_bounds__(@THREADS@)
ccl_combine(const ccl_kernel_::Stored* rows, unsigned long long stride, int count_of_rows,
            ccl_kernel_::Stored* out, unsigned long long count) {
  using namespace ccl_kernel_;
  using Size = unsigned long long;
  const Size first = Size(blockIdx.x) * blockDim.x + threadIdx.x, step = Size(gridDim.x) * blockDim.x;
  const bool aligned = ((Size(rows) | Size(out) | stride * sizeof(Stored)) & 15) == 0;
  const Size packs = aligned ? count / pack_size : 0;
  for (Size p = first; p < packs; p += step) {
    Value sum[pack_size];
    Pack pack = reinterpret_cast<const Pack*>(rows)[p];
    for (int e = 0; e < pack_size; ++e) sum[e] = widened(pack.of[e]);
    for (int r = 1; r < count_of_rows; ++r) {
      pack = reinterpret_cast<const Pack*>(rows + r * stride)[p];
      for (int e = 0; e < pack_size; ++e) sum[e] = Functor{}(sum[e], widened(pack.of[e]));
    }
    for (int e = 0; e < pack_size; ++e) pack.of[e] = narrowed(sum[e]);
    reinterpret_cast<Pack*>(out)[p] = pack;
  }
  for (Size i = packs * pack_size + first; i < count; i += step) {
    Value sum = widened(rows[i]);
    for (int r = 1; r < count_of_rows; ++r) sum = Functor{}(sum, widened(rows[r * stride + i]));
    out[i] = narrowed(sum);
  }
}
"""
_SAME = """inline Value widened(Stored v) { return v; }
inline Stored narrowed(Value v) { return v; }"""
# An infinity stays one in formats of 16 bits. In those of 8 bits a value too large becomes the
# largest finite one, as in ccl's other reductions.
_NARROWED = """inline Value widened(Stored v) {
  constexpr int mantissa = @MANTISSA@, bias = @BIAS@;
  constexpr unsigned sign = 1u << (8 * sizeof(Stored) - 1);
  const unsigned code = v & (sign - 1);
  float made = __uint_as_float(code << (23 - mantissa));
  if (bias != 127) made *= __uint_as_float(unsigned(254 - bias) << 23);
  if (code > @LARGEST@u) made = __uint_as_float(code << (23 - mantissa) | 0x7f800000u);
  return v & sign ? -made : made;
}
inline Stored narrowed(Value f) {
  constexpr int mantissa = @MANTISSA@, bias = @BIAS@;
  const unsigned bits = __float_as_uint(f), size = bits & 0x7fffffffu;
  const unsigned sign = bits >> 31 << (8 * sizeof(Stored) - 1);
  if (size > 0x7f800000u) return Stored(sign | ((1u << (8 * sizeof(Stored) - 1)) - 1));
  unsigned code;
  if (bias != 127 && size < unsigned(128 - bias) << 23) {  // below the normal numbers
    code = unsigned(rintf(__uint_as_float(size) * __uint_as_float(unsigned(126 + bias + mantissa) << 23)));
  } else {
    const unsigned rounded = size + (1u << (22 - mantissa)) - 1 + (size >> (23 - mantissa) & 1);
    code = (rounded >> (23 - mantissa)) - (unsigned(127 - bias) << mantissa);
  }
  if (code > @LARGEST@u) code = @SATURATES@ ? @LARGEST@u : @LARGEST@u + 1;
  return Stored(sign | code);
}"""


def text_of(functor: Functor, element: str) -> str:
    """Returns the source of the kernel for elements of a type of `_core.types`."""
    combined = combined_type(element)
    stored, conversions = combined, _SAME
    if element in _NARROW:
        stored, mantissa, bias, largest, saturates = _NARROW[element]
        conversions = _NARROWED
        for name, value in (("MANTISSA", mantissa), ("BIAS", bias), ("LARGEST", largest),
                            ("SATURATES", str(saturates).lower())):  # fmt: skip
            conversions = conversions.replace(f"@{name}@", str(value))
    after = _KERNEL.replace("@CONVERSIONS@", conversions)
    for name, value in (("NAME", functor.name), ("TYPE", combined), ("STORED", stored),
                        ("THREADS", _THREADS)):  # fmt: skip
        after = after.replace(f"@{name}@", str(value))
    return f"#include <cstdint>\n{functor._text}{after}"


class Kernel:
    """Kernel of one functor and type, loaded on one device."""

    def __init__(self, functor: Functor, type: int, device: int) -> None:
        cuda = _cuda.driver()
        assert cuda is not None  # a communicator of GPUs needs it
        self._cuda, self._device = cuda, device
        element, size = _core.types[type]
        with on_device(device), relaxed():
            major, minor, processors = (_attribute(cuda, device, of) for of in (_MAJOR, _MINOR, _PROCESSORS))
            code = _compiled(functor, element, f"sm_{major}{minor}")
            module, self._function = _Pointer(), _Pointer()
            text = f"functor {functor.name} cannot be loaded on CUDA device {device} ({{}})"
            check(cuda.cuModuleLoadData(ctypes.byref(module), code), text)
            check(cuda.cuModuleGetFunction(ctypes.byref(self._function), module, b"ccl_combine"), text)
        self._most_blocks = processors * _BLOCKS_PER_PROCESSOR
        self._per_block = _THREADS * 16 // size

    def combine(self, rows: int, stride: int, ranks: int, out: int, count: int, stream: int) -> None:
        """Queues ``out[i] = rows[i] + rows[stride + i] + ...`` for `count` elements and `ranks` rows.

        The device's context is current.
        """
        if count == 0:
            return
        given = (ctypes.c_void_p(rows), ctypes.c_ulonglong(stride), _Int(ranks), ctypes.c_void_p(out),
                 ctypes.c_ulonglong(count))  # fmt: skip
        addresses = (_Pointer * len(given))(*(ctypes.addressof(one) for one in given))
        blocks = min(self._most_blocks, -(-count // self._per_block))
        check(
            self._cuda.cuLaunchKernel(self._function, blocks, 1, 1, _THREADS, 1, 1, 0, _Pointer(stream),
                                      addresses, None),
            f"the kernel of a functor does not start on CUDA device {self._device} ({{}})",
        )  # fmt: skip


_kernels: dict[tuple[str, int, int], Kernel] = {}
_lock = threading.Lock()


def kernel_of(functor: Functor, type: int, device: int) -> Kernel:
    """Returns the kernel for a type of `_core.types`. The first call compiles and loads it."""
    key = (functor._key, type, device)
    with _lock:  # ranks may be threads
        if key not in _kernels:
            _kernels[key] = Kernel(functor, type, device)
        return _kernels[key]


def _attribute(cuda: ctypes.CDLL, device: int, which: int) -> int:
    found, handle = _Int(), _Int()
    text = f"CUDA device {device} cannot be asked for attribute {which} ({{}})"
    check(cuda.cuDeviceGet(ctypes.byref(handle), device), text)
    check(cuda.cuDeviceGetAttribute(ctypes.byref(found), which, handle), text)
    return found.value


def _packages() -> Iterator[Path]:
    """Yields the folders in which pip installs parts of CUDA."""
    for key in ("purelib", "platlib"):
        yield from sorted(Path(sysconfig.get_path(key), "nvidia").glob("*"), reverse=True)


def _toolkits() -> Iterator[Path]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name])
    yield Path("/usr/local/cuda")


@functools.lru_cache
def compiler() -> ctypes.CDLL:
    """Returns CUDA's run-time compiler: one that is loaded, of the loader's path, a toolkit, or pip."""
    names = ("libnvrtc.so.13", "libnvrtc.so.12")
    folders = [folder / "lib64" for folder in _toolkits()] + [folder / "lib" for folder in _packages()]
    for at in [*names, *(str(folder / name) for folder in folders for name in names)]:
        try:
            return ctypes.CDLL(at)
        except OSError:
            continue
    raise NotSupportedError(
        "functors on GPUs need CUDA's run-time compiler, and there is no libnvrtc.so.13 or .12; install the "
        "package nvidia-cuda-nvrtc or a CUDA toolkit, and name that by CUDA_HOME"
    )


@functools.lru_cache
def _library_folder() -> Path | None:
    """Returns the folder of CUDA's C++ library (libcu++), if it is installed."""
    folders = [*_toolkits(), *_packages()]
    for folder in [folder / "include" / part for folder in folders for part in ("cccl", "")]:
        if (folder / "cuda" / "std" / "type_traits").is_file():
            return folder
    return None


def _compiled(functor: Functor, element: str, architecture: str) -> bytes:
    """Returns a cubin."""
    rtc, library = compiler(), _library_folder()
    headers = dict(_ALONE)
    if library is not None:
        for name in _OF_LIBRARY:
            headers[name] = f"#pragma once\n#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n"
    options = ["--std=c++20", f"--gpu-architecture={architecture}", "--device-as-default-execution-space"]
    options += [flag for flag in functor._flags if flag[:2] in ("-I", "-D", "-U")]
    options += [f"-I{library}"] if library else []
    program = _Pointer()
    failed = rtc.nvrtcCreateProgram(
        ctypes.byref(program), text_of(functor, element).encode(), b"functor", len(headers),
        _texts(headers.values()), _texts(headers),
    )  # fmt: skip
    if failed != 0:
        raise create("cuda", f"nvrtcCreateProgram failed with {failed}", -1, -1, failed, "", "")
    try:
        if rtc.nvrtcCompileProgram(program, len(options), _texts(options)) != 0:
            raise CompileError(
                f"functor {functor.name} does not compile for elements of {element} on GPUs ({architecture}):\n"
                f"{_output(rtc, 'ProgramLog', program).decode(errors='replace').strip(chr(0)).strip()}"
                + ("" if library else "\n(no libcu++ was found, so that only <algorithm>, <cmath>, <cstddef> and "
                   "<cstdint> can be included; name a CUDA toolkit by CUDA_HOME)")
            )  # fmt: skip
        return _output(rtc, "CUBIN", program)
    finally:
        rtc.nvrtcDestroyProgram(ctypes.byref(program))


def _texts(given: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [one.encode() for one in given]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _output(rtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    getattr(rtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(rtc, f"nvrtcGet{what}")(program, text)
    return text.raw
