#include <fmt/format.h>

#include "nccl/device/devices.hpp"
#include "nccl/device/signals.hpp"

namespace ccl::detail::nccl {
namespace {

using Counter = unsigned long long;
static_assert(sizeof(Counter) == sizeof(std::uint64_t));

__global__ void add_signal(Counter* counter) {
  __threadfence_system();  // behind the stream's copies
  atomicAdd_system(counter, Counter{1});
}

__global__ void wait_for_signals(const volatile Counter* counter, Counter* taken, Counter times,
                                 const volatile Counter* stop) {
  const Counter until = *taken + times;
  while (*counter < until && *stop == 0) __nanosleep(100);
  __threadfence_system();
  *taken = until;
}

/// Launches one thread. Its own error is that of the call, and an earlier one of this thread is
/// not.
template <class... Params, class... Args>
Result<void> launch(const char* what, void (*kernel)(Params...), cudaStream_t stream,
                    Args... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = dim3{1};
  config.stream = stream;
  return check_cuda(cudaLaunchKernelEx(&config, kernel, Params(args)...), what);
}

}  // namespace

Result<void> load_signals_on_gpu() {
  cudaFuncAttributes attributes{};
  CCL_CHECK(check_cuda(cudaFuncGetAttributes(&attributes, add_signal), "loading a kernel"));
  return check_cuda(cudaFuncGetAttributes(&attributes, wait_for_signals), "loading a kernel");
}
Result<void> copy_on_gpu(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  return check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
                    "cudaMemcpyAsync to a peer's window");
}
Result<void> signal_on_gpu(std::uint64_t* counter, cudaStream_t stream) {
  return launch("the launch of a signal", add_signal, stream, reinterpret_cast<Counter*>(counter));
}
Result<void> wait_on_gpu(const std::uint64_t* counter, std::uint64_t* taken, std::uint64_t times,
                         const std::uint64_t* stop, cudaStream_t stream) {
  return launch("the launch of a wait for signals", wait_for_signals, stream,
                reinterpret_cast<const Counter*>(counter), reinterpret_cast<Counter*>(taken),
                Counter{times}, reinterpret_cast<const Counter*>(stop));
}

}  // namespace ccl::detail::nccl
