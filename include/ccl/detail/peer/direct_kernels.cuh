#pragma once

#include <ccl/detail/exec/device_shape.cuh>
#include <ccl/detail/peer/direct_body.hpp>
#include <ccl/detail/peer/direct_registry.hpp>

namespace ccl::detail {

/// One kernel runs all alignments and numbers of ranks up to `max_unrolled_ranks`, and one all
/// larger numbers.
template <class Op, class Algo, class Proto, class R>
struct RegisteredKernels<DirectKernels<Op, Algo, Proto, R>> {
  using Group = BlockLanes<512>;
  using Few = DirectBody<Op, Algo, R>;
  using Wide = DirectBody<Op, Algo, R, max_view_ranks>;

  static int launch(const DirectWork<R>& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      return how.peers.ranks > max_unrolled_ranks ? launch_as<Wide>(how, target)
                                                  : launch_as<Few>(how, target);
    });
  }
  template <class Body>
  static cudaError_t launch_as(const DirectWork<R>& how, const DeviceTarget& target) {
    DirectWork<R> work = how;
    if (!Body::template prepare<Group>(work)) return cudaErrorInvalidValue;
    int most = target.max_blocks < work.epoch.count ? target.max_blocks : work.epoch.count;
    // 16 to 32 blocks read fastest on 4 H200: an all-reduce of 1 GiB takes 5.0 ms so, and 5.4 to
    // 6.0 ms on 40 to 128. Among 2, 256 MiB take 792 us on 32 and 790 to 809 on more. More ranks
    // were not measured.
    if (how.peers.ranks <= 4 && most > 32) most = 32;
    work.channels = work.blocks = work.rings < most ? work.rings : most;
    const CudaShape shape{work.channels, work.blocks, target.share};
    return CudaExecutor::launch<Group, Body>(work, shape, target.stream);
  }
  static int load(int device) {
    return on_device(device, [] {
      cudaError_t e = CudaExecutor::load_alone<R>();
      if (e == cudaSuccess) e = CudaExecutor::load<Group, Few>();
      return e != cudaSuccess ? e : CudaExecutor::load<Group, Wide>();
    });
  }
  static inline KernelLoader loader{&load, nullptr};
  static inline const bool once = [] {
    DirectKernels<Op, Algo, Proto, R>::launch = &launch;
    loader.next = ComposedKernels<Op, Algo, Proto>::first;
    ComposedKernels<Op, Algo, Proto>::first = &loader;
    return true;
  }();
};

}  // namespace ccl::detail
