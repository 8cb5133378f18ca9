// Kernels whose bodies access nothing, as those of a message without elements may do.
#include <ccl/detail/exec/cuda_executor.cuh>
#include <ccl/detail/lanes/device_lanes.cuh>

namespace {
struct Nothing {
  struct Work {
    int channels;
  };
  static constexpr int max_lanes = 512;
  Work work;
  template <class Group>
  CCL_DEVICE void operator()(Group, int) const {}
};
using Group = ccl::detail::WarpLanes;
using Executor = ccl::detail::CudaExecutor;
using Part = ccl::detail::KernelPart<0, Group, Nothing>;
}  // namespace

cudaError_t load_all() {
  if (const auto e = Executor::load<Group, Nothing>(); e != cudaSuccess) return e;
  if (const auto e = Executor::load_parts<512, Part>(); e != cudaSuccess) return e;
  return Executor::load_list<Group, Nothing, 4>();
}
