"""One of several ranks with a played device, which reduces with functors of its own.

The wheel's library is one for CPU ranks, so host memory is that of the device. The kernels' source
is compiled for the host, and a launch calls it for each thread.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import ccl
from ccl import _combine, _cuda, _kernels
from rank_gpu import Played

CLAMPED = """
#include <algorithm>
struct Clamped {
  template <class T>
  T operator()(T a, T b) const { return std::min<T>(a + b, 100); }
};
"""
FIRST = "struct First { template <class T> T operator()(const T& a, const T&) const { return a; } };"
ADD = "struct Add { template <class T> T operator()(const T& a, const T& b) const { return a + b; } };"

HOST = """#include <cmath>
#define __global__
#define __launch_bounds__(threads)
struct Place { unsigned x; };
static Place blockIdx, blockDim, gridDim, threadIdx;
static float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
static unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
"""
LAUNCH = """
extern "C" void launch(unsigned blocks, unsigned threads, void** given) {
  gridDim.x = blocks;
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {
      ccl_combine(*(const ccl_kernel_::Stored**)given[0], *(unsigned long long*)given[1],
                  *(int*)given[2], *(ccl_kernel_::Stored**)given[3], *(unsigned long long*)given[4]);
    }
  }
}
"""


class Driver:
    """Takes the place of CUDA's driver. Counts the bytes that are allocated now, and all launches."""

    def __init__(self):
        self.memory, self.launches, self.most = {}, 0, 0
        self.full = False

    def cuDeviceGetAttribute(self, found, which, device):
        found._obj.value = {16: 2, 75: 9, 76: 0}[which]
        return 0

    def cuModuleLoadData(self, module, code):
        self.loaded = ctypes.CDLL(code.decode())
        return 0

    def cuModuleGetFunction(self, function, module, name):
        assert name == b"ccl_combine"
        function._obj.value = ctypes.cast(self.loaded.launch, ctypes.c_void_p).value
        return 0

    def cuLaunchKernel(self, function, x, y, z, threads, *rest):
        ctypes.CFUNCTYPE(None, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p)(function.value)(x, threads, rest[4])
        self.launches += 1
        return 0

    def cuMemAllocFromPoolAsync(self, found, bytes, pool, stream):
        if self.full:
            return 2
        block = np.empty(bytes.value // 8 + 2, "int64")
        found._obj.value = (block.ctypes.data + 15) & ~15
        self.memory[found._obj.value] = block
        self.most = max(self.most, bytes.value)
        return 0

    def cuMemFreeAsync(self, address, stream):
        del self.memory[address.value]
        return 0

    def __getattr__(self, name):
        return lambda *given: 0


def play(folder):
    """From now on the driver is played. Kernels are compiled for the host, into `folder`."""

    def compiled(functor, element, architecture):
        assert architecture == "sm_90"
        made = str(Path(folder, f"{functor.name}_{element}.so"))
        done = subprocess.run(["c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-x", "c++", "-", "-o", made],
                              input=HOST + _kernels.text_of(functor, element) + LAUNCH, text=True,
                              capture_output=True)  # fmt: skip
        if done.returncode:
            raise ccl.CompileError(f"functor {functor.name}: {done.stderr}")
        return made.encode()

    driver = Driver()
    _cuda.driver = lambda: driver
    _kernels._compiled = compiled
    return driver


def same(found, wanted):
    assert np.array_equal(found, wanted), (found, wanted)


def reductions(comm, driver, functor, dtype, counts):
    """All kinds of calls, with sizes on both sides of the limits, in place too."""
    n, me = comm.ranks, comm.rank
    for count in counts:
        rows = [(np.arange(count) * 7 % 61 + 3 * r).astype(dtype) for r in range(n)]
        sums = np.minimum(sum(row.astype("float64") for row in rows), 100).astype(dtype)
        mine, out = rows[me].copy(), np.zeros(count, dtype)
        comm.all_reduce(Played(mine), functor, out=Played(out), stream=0)
        same(out, sums)
        same(mine, rows[me])
        comm.all_reduce(Played(mine), functor, out=Played(mine), stream=0)
        same(mine, sums)
        out[:] = 0
        comm.reduce(Played(rows[me]), functor, root=n - 1, out=Played(out))
        same(out, sums if me == n - 1 else np.zeros(count, dtype))
        wide = np.concatenate([rows[(me + r) % n] for r in range(n)])
        part = np.zeros(count, dtype)
        comm.reduce_scatter(Played(wide), functor, out=Played(part))
        same(part, sums)
    assert not driver.memory, "scratch that nobody frees"


def values_of(name, codes):
    """Returns what codes of a narrow format mean, by its definition."""
    mantissa, bias = {"half": (10, 15), "bfloat16": (7, 127), "f8e4m3": (3, 7), "f8e5m2": (2, 15)}[name]
    bits = codes.dtype.itemsize * 8
    size = (codes & ((1 << bits - 1) - 1)).astype("int64")
    exponent, part = size >> mantissa, size & ((1 << mantissa) - 1)
    scale = np.ldexp(1.0, np.maximum(exponent, 1) - bias - mantissa)
    found = scale * (part + np.where(exponent > 0, 1 << mantissa, 0))
    top = (1 << bits - 1 - mantissa) - 1
    if name == "f8e4m3":
        found[size == 0x7F] = np.nan
    else:
        found[exponent == top] = np.where(part[exponent == top] == 0, np.inf, np.nan)
    return np.where(codes >> (bits - 1) != 0, -found, found)


def rounded(name, values, codes):
    """Returns the nearest value of a format, the even one of two. Those of 8 bits have no infinities."""
    known = values_of(name, codes[: len(codes) // 2])
    known = known[np.isfinite(known)]  # of positive codes, which are in order
    size = np.abs(values)
    above = np.minimum(np.searchsorted(known, size), len(known) - 1)
    below = np.maximum(above - 1, 0)
    gap = size - known[below] - (known[above] - size)
    code = np.where((gap > 0) | ((gap == 0) & (above % 2 == 0)), above, below)
    found = known[code]
    if not name.startswith("f8"):
        limit = known[-1] + (known[-1] - known[-2]) / 2
        found = np.where(size >= limit, np.inf, found)
    return np.where(np.isnan(values), np.nan, np.copysign(found, values))


def narrow(comm):
    """All codes of a format survive, and sums are rounded once."""
    add, first = ccl.Functor("Add", ADD), ccl.Functor("First", FIRST)
    numbers = {name: number for number, (name, _) in enumerate(ccl._core.types)}
    for name, bits in (("half", 16), ("bfloat16", 16), ("f8e4m3", 8), ("f8e5m2", 8)):
        codes = np.arange(1 << bits).astype(f"uint{bits}")
        rows = [np.roll(codes, 12345 * r) for r in range(comm.ranks)]
        for functor in (first, add):
            out = np.zeros_like(codes)
            comm._core.all_reduce(rows[comm.rank].ctypes.data, out.ctypes.data, len(codes), numbers[name],
                                  functor.name, 0, 0, functor)  # fmt: skip
            values = [values_of(name, row).astype("float32") for row in rows]
            with np.errstate(invalid="ignore", over="ignore"):
                wanted = rounded(name, values[0] if functor is first else sum(values), codes)
            found = values_of(name, out)
            assert np.array_equal(found, wanted, equal_nan=True), (name, functor)
            if functor is first and not name.startswith("f8"):
                same(out[np.isfinite(found)], codes[np.isfinite(found)])  # also the sign of zero


def faults(comm, driver, clamped):
    data = np.ones(8, "float32")
    driver.full = True
    try:
        comm.all_reduce(Played(data), clamped, out=Played(data.copy()))
    except ccl.Error as error:
        assert error.code == "cuda" and "bytes for a reduction on CUDA device 0" in str(error), error
    else:
        raise AssertionError("no error of a full device")
    driver.full = False
    try:
        comm.all_reduce(Played(data > 0), clamped, out=Played(data > 0))
    except ccl.InvalidArgumentError:
        pass
    else:
        raise AssertionError("bool was combined")


def main(folder):
    driver = play(folder)
    comm = ccl.Communicator.from_env(device=0)
    clamped = ccl.Functor("Clamped", CLAMPED)
    reductions(comm, driver, clamped, "float32", (1, 5, 4096))
    _combine.GATHERED_BYTES, _combine.SCRATCH_BYTES = 1024, 4096
    before, driver.most = driver.launches, 0
    reductions(comm, driver, clamped, "float32", (5, 90, 999, 3000))
    reductions(comm, driver, clamped, "int64", (17, 777))
    assert driver.most <= 4096, driver.most
    assert driver.launches > before
    narrow(comm)
    faults(comm, driver, clamped)
    comm.finalize()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as given:
        main(given)
