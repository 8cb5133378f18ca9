// CPU time of the executor's launch. It is compared with a bare launch of an empty kernel with as
// many bytes of arguments, on the same thread and stream. Prints medians of 10,000 calls, one line
// of JSON each. It needs one GPU, because the executor's kernel does nothing.
#include <ccl/detail/exec/cuda_executor.cuh>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/detail/wire/work.hpp>

#include <algorithm>
#include <chrono>

#include "machine.cuh"

using namespace ccl;
using namespace ccl::bench;

namespace {
using Sum32 = detail::Reduction<Sum, float>;

/// Body that ignores the work of a collective.
struct NothingBody {
  using Work = detail::WireWork<Sum32>;
  static constexpr int max_lanes = 512;
  const Work& work;
  template <class Group>
  CCL_HD void operator()(Group, int) const {}
};
__global__ void nothing(const __grid_constant__ detail::WireWork<Sum32>, int) {}

template <class F>
void report(const char* what, cudaStream_t stream, F launch) {
  std::vector<double> ns;
  for (int i = 0; i < 11000; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    MUST(launch());
    const auto end = std::chrono::steady_clock::now();
    if (i >= 1000) ns.push_back(std::chrono::duration<double, std::nano>(end - begin).count());
    if (i % 100 == 99) MUST(cudaStreamSynchronize(stream));  // keeps the queue from filling
  }
  std::sort(ns.begin(), ns.end());
  std::printf("{\"launch\":\"%s\",\"argument_bytes\":%zu,\"median_ns\":%.0f,\"p90_ns\":%.0f}\n",
              what, sizeof(detail::WireWork<Sum32>), ns[ns.size() / 2], ns[ns.size() * 9 / 10]);
}
}  // namespace

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 1) {
    std::printf("SKIP: needs a GPU\n");
    return 77;
  }
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const detail::WireWork<Sum32> work{Sum32{Sum{}, 1}};
  auto share = detail::LaunchShare::whole_gpu();
  for (int again = 0; again < 3; ++again) {
    for (const bool early : {false, true}) {
      report(early ? "bare, early" : "bare", stream, [&] {
        cudaLaunchAttribute attribute{};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(16);
        config.blockDim = dim3(128);
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = early ? 1 : 0;
        return cudaLaunchKernelEx(&config, nothing, work, 64);
      });
      report(early ? "executor, early" : "executor", stream, [&] {
        return detail::CudaExecutor::launch<detail::WarpLanes, NothingBody>(
            work, {64, 16, early ? &share : nullptr}, stream);
      });
    }
  }
}
