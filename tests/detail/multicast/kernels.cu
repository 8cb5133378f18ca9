// `Nvls` with the instructions of NVLink multicast and with the emulation. Compiled, never run.
#include <ccl/algo/nvls.hpp>
#include <ccl/detail/lanes/device_lanes.cuh>
#include <ccl/detail/multicast/body.hpp>
#include <ccl/detail/multicast/switch_memory.cuh>

using namespace ccl;
using Lanes = detail::BlockLanes<512>;

template <class R>
using Work = detail::MulticastWork<R>;
using Switch = detail::SwitchMulticast;
using Emulated = detail::UnicastMulticast<detail::DeviceMemory>;
using Sums = detail::Reduction<Sum, bfloat16>;

template <class Op, class Multicast, class R>
__device__ void run(const Work<R>& work) {
  const detail::MulticastBody<Op, Nvls, Simple, Multicast, 16, R> body{work};
  const Word left = body(Lanes{}, int(blockIdx.x));
  body.end(left, int(blockIdx.x), int(threadIdx.x), Lanes::width);
}
__global__ void __launch_bounds__(512) sums(const __grid_constant__ Work<Sums> work) {
  run<AllReduce, Switch>(work);
}
__global__ void __launch_bounds__(512) emulated_sums(const __grid_constant__ Work<Sums> work) {
  run<AllReduce, Emulated>(work);
}
__global__ void __launch_bounds__(512) copies(const __grid_constant__ Work<detail::Bytes> work) {
  run<Broadcast, Switch>(work);
}
