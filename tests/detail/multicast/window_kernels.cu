// `Nvls` with the instructions of NVLink multicast, for buffers that may lie in windows. Compiled,
// never run.
#include <ccl/algo/nvls.hpp>
#include <ccl/detail/lanes/device_lanes.cuh>
#include <ccl/detail/multicast/body.hpp>
#include <ccl/detail/multicast/switch_memory.cuh>

using namespace ccl;
using Lanes = detail::BlockLanes<512>;
using Sums = detail::Reduction<Sum, bfloat16>;

template <class Op, class R>
__device__ void run(const detail::MulticastWork<R>& work) {
  using Buffers = detail::WindowBuffers;
  const detail::MulticastBody<Op, Nvls, Simple, detail::SwitchMulticast, 16, R, Buffers> body{work};
  const Word left = body(Lanes{}, int(blockIdx.x));
  body.end(left, int(blockIdx.x), int(threadIdx.x), Lanes::width);
}
__global__ void __launch_bounds__(512)
    sums(const __grid_constant__ detail::MulticastWork<Sums> work) {
  run<AllReduce>(work);
}
__global__ void __launch_bounds__(512)
    parts(const __grid_constant__ detail::MulticastWork<Sums> work) {
  run<ReduceScatter>(work);
}
__global__ void __launch_bounds__(512)
    copies(const __grid_constant__ detail::MulticastWork<detail::Bytes> work) {
  run<AllGather>(work);
}
