#include <ccl/detail/lanes/device_lanes.cuh>

#include <fmt/format.h>

#include <algorithm>

#include "nccl/device/devices.hpp"
#include "nccl/device/signal_wait.hpp"
#include "nccl/device/signals.hpp"

namespace ccl::detail::nccl {
namespace {

using Counter = unsigned long long;
static_assert(sizeof(Counter) == sizeof(std::uint64_t));

__global__ void add_signal(Counter* counter) {
  __threadfence_system();  // behind the stream's copies
  atomicAdd_system(counter, Counter{1});
}

// Messages up to here are copied by a kernel, which also signals: the driver's copy takes several
// us more before the signal can follow, and few us of 32 multiprocessors are no loss to others.
constexpr std::size_t max_kernel_bytes = 2 << 20;
constexpr std::size_t block_bytes = 16 << 10;
constexpr std::size_t max_blocks = 32;
constexpr unsigned copying_threads = 512;

constexpr std::size_t max_odd_bytes = 64 << 10;  // of a message at an odd address

template <class Unit>
__device__ void copy_units(void* to, const void* from, unsigned bytes) {
  constexpr unsigned together = 4;  // loads of a thread that are under way at once
  Unit* const out = static_cast<Unit*>(to);
  const Unit* const in = static_cast<const Unit*>(from);
  const unsigned units = bytes / unsigned{sizeof(Unit)}, step = gridDim.x * blockDim.x;
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + (together - 1) * step < units; i += together * step) {
    Unit loaded[together];
    for (unsigned k = 0; k < together; ++k) loaded[k] = in[i + k * step];
    for (unsigned k = 0; k < together; ++k) out[i + k * step] = loaded[k];
  }
  for (; i < units; i += step) out[i] = in[i];
}
__host__ __device__ std::uintptr_t alignment_bits(const void* to, const void* from,
                                                  std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes;
}

/// The last block to end adds the signal. `ended` is 0 before and after.
__global__ void copy_and_add_signal(void* to, const void* from, unsigned bytes, Counter* counter,
                                    unsigned* ended) {
  const std::uintptr_t bits = alignment_bits(to, from, bytes);
  if (bits % sizeof(uint4) == 0) {
    copy_units<uint4>(to, from, bytes);
  } else if (bits % sizeof(unsigned) == 0) {
    copy_units<unsigned>(to, from, bytes);
  } else {
    copy_units<char>(to, from, bytes);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  if (gridDim.x > 1) {
    if (atomicInc(ended, gridDim.x - 1) != gridDim.x - 1) return;
    __threadfence_system();
  }
  atomicAdd_system(counter, Counter{1});
}

__global__ void await_signals(const Word* counter, Word* taken, Word times, int peer,
                              AbortWatch watch) {
  wait_for_signals<DeviceMemory>(counter, taken, times, peer, watch);
  __threadfence_system();
}

/// Launches a kernel. Its own error is that of the call, and an earlier one of this thread is not.
template <class... Params, class... Args>
Result<void> launch(const char* what, void (*kernel)(Params...), unsigned blocks, unsigned threads,
                    cudaStream_t stream, Args... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3{blocks};
  config.blockDim = dim3{threads};
  config.stream = stream;
  return check_cuda(cudaLaunchKernelEx(&config, kernel, Params(args)...), what);
}

/// True if `at` is in memory of the current GPU. Kernels may be unable to load from other memory,
/// which the driver can copy.
bool is_on_this_gpu(const void* at) {
  cudaPointerAttributes of{};
  int device = 0;
  if (cudaPointerGetAttributes(&of, at) == cudaSuccess && cudaGetDevice(&device) == cudaSuccess) {
    return of.type == cudaMemoryTypeDevice && of.device == device;
  }
  (void)cudaGetLastError();
  return false;
}

}  // namespace

Result<void> load_signals_on_gpu() {
  cudaFuncAttributes attributes{};
  CCL_CHECK(check_cuda(cudaFuncGetAttributes(&attributes, add_signal), "loading a kernel"));
  CCL_CHECK(
      check_cuda(cudaFuncGetAttributes(&attributes, copy_and_add_signal), "loading a kernel"));
  return check_cuda(cudaFuncGetAttributes(&attributes, await_signals), "loading a kernel");
}
Result<void> put_on_gpu(void* to, const void* from, std::size_t bytes, std::uint64_t* counter,
                        std::uint64_t* ended, cudaStream_t stream) {
  const bool by_words = alignment_bits(to, from, bytes) % sizeof(unsigned) == 0;
  if (bytes <= (by_words ? max_kernel_bytes : max_odd_bytes) && is_on_this_gpu(from)) {
    const std::size_t blocks = std::clamp(bytes / block_bytes, std::size_t{1}, max_blocks);
    return launch("the launch of a put", copy_and_add_signal, unsigned(blocks), copying_threads,
                  stream, to, from, unsigned(bytes), reinterpret_cast<Counter*>(counter),
                  reinterpret_cast<unsigned*>(ended));
  }
  CCL_CHECK(check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
                       "cudaMemcpyAsync to a peer's window"));
  return signal_on_gpu(counter, stream);
}
Result<void> signal_on_gpu(std::uint64_t* counter, cudaStream_t stream) {
  return launch("the launch of a signal", add_signal, 1, 1, stream,
                reinterpret_cast<Counter*>(counter));
}
Result<void> wait_on_gpu(const std::uint64_t* counter, std::uint64_t* taken, std::uint64_t times,
                         int peer, const AbortWatch& watch, cudaStream_t stream) {
  return launch("the launch of a wait for signals", await_signals, 1, 1, stream, counter, taken,
                times, peer, watch);
}

}  // namespace ccl::detail::nccl
