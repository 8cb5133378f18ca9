#pragma once

#include <ccl/detail/exec/device_shape.cuh>
#include <ccl/detail/lanes/pair_lane.hpp>
#include <ccl/detail/peer/prims.hpp>
#include <ccl/detail/peer/registry.hpp>

namespace ccl::detail {

/// Maximum and minimum number of ranks that an algorithm's kernels run.
template <class Counts>
struct RangeOfRanks;
template <int... Ranks>
struct RangeOfRanks<RankCounts<Ranks...>> {
  static constexpr int most = [] {
    int found = 0;
    ((found = Ranks > found ? Ranks : found), ...);
    return found;
  }();
  static constexpr int fewest = [] {
    int found = fewest_ranks(most);
    ((found = fewest_ranks(Ranks) < found ? fewest_ranks(Ranks) : found), ...);
    return found;
  }();
};

template <class Op, class Algo, class Proto, class R>
struct RegisteredKernels<PeerKernels<Op, Algo, Proto, R>> {
  using Group = WarpLanes;
  using Counts = typename Algo::RankCounts::Kernels;
  using Range = RangeOfRanks<Counts>;
  template <int Ranks, class P = Proto>
  using Body = PeerBody<Op, Algo, P, 16, R, Ranks>;
  /// Kernel for buffers of any alignment, and for all numbers of ranks.
  template <class P = Proto>
  using AnyBody = PeerBody<Op, Algo, P, any_align, R, Range::most, Range::fewest>;
  static constexpr bool one_kernel = requires { Algo::one_kernel; };
  /// Minimum bytes of a share that moves in pairs: see `TwoShot::pairs_from`. 0: no pairs.
  static constexpr Index pairs_from = [] {
    if constexpr (requires { Algo::template pairs_from<Op>; }) {
      if (moves_pairs<Proto, Group, typename R::Type>()) return Algo::template pairs_from<Op>;
    }
    return Index{0};
  }();

  static int launch(const PeerWork<R>& how, const DeviceTarget& target) {
    return on_device(target.device, [&] { return for_ranks(Counts{}, how, target); });
  }
  template <int... Ranks>
  static cudaError_t for_ranks(RankCounts<Ranks...>, const PeerWork<R>& how,
                               const DeviceTarget& target) {
    cudaError_t result = cudaErrorInvalidValue;
    const int kernel = Counts::kernel_for(how.peers.ranks);
    (void)((kernel == Ranks && (result = launch_for<Ranks>(how, target), true)) || ...);
    return result;
  }
  template <int Ranks>
  static cudaError_t launch_for(const PeerWork<R>& how, const DeviceTarget& target) {
    if constexpr (pairs_from > 0) {
      const Index share = Body<Ranks>::template share<Group>(how);
      if (share * Index{sizeof(typename R::Type)} >= pairs_from) {
        return launch_all<Ranks, typename Proto::Pairs>(how, target);
      }
    }
    return launch_all<Ranks, Proto>(how, target);
  }
  /// Launches a message in as many parts as the scratch requires. Ranks whose buffers have other
  /// alignments make the same parts.
  template <int Ranks, class P>
  static cudaError_t launch_all(const PeerWork<R>& how, const DeviceTarget& target) {
    using Exact = Body<Ranks, P>;
    constexpr Index size = sizeof(typename R::Type);
    const Index most = Exact::template max_elements<Group>(how);
    if (most < 1) return cudaErrorInvalidValue;
    const bool aligned = alignment(how) == 16;
    for (Index at = 0; at < how.layout.count; at += most) {
      PeerWork<R> work = how;
      work.rows = Ranks;
      work.input = static_cast<const char*>(how.input) + at * size;
      work.output = static_cast<char*>(how.output) + at * size;
      work.layout.count = how.layout.count - at < most ? how.layout.count - at : most;
      const CudaShape shape = spread<Exact>(work, Exact::max_lanes, target);
      const cudaError_t e = launch_one<Ranks, P>(work, shape, target.stream, aligned);
      if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
  }
  template <int Ranks, class P>
  static cudaError_t launch_one(const PeerWork<R>& work, const CudaShape& shape,
                                cudaStream_t stream, bool aligned) {
    if constexpr (!one_kernel) {
      if (aligned) return CudaExecutor::launch<Group, Body<Ranks, P>>(work, shape, stream);
    }
    return CudaExecutor::launch<Group, AnyBody<P>>(work, shape, stream);
  }
  /// Assigns one warp per tile, spread over as many blocks as possible. Measured on H200.
  template <class Body>
  static CudaShape spread(PeerWork<R>& work, int max_lanes, const DeviceTarget& target) {
    const Index max_warps = max_lanes / Group::width;
    const Index tiles = Body::template tiles<Group>(work);
    Index blocks = target.max_blocks < work.epoch.count ? target.max_blocks : work.epoch.count;
    if (tiles < blocks) blocks = tiles;
    Index warps = div_up(tiles, blocks);
    warps = warps < max_warps ? warps : max_warps;
    work.blocks = int(blocks);
    work.channels = int(blocks * warps);
    return {work.channels, int(blocks), target.share};
  }
  template <int Ranks>
  static Index packets(const PeerWork<R>& how) {
    const Index share = Body<Ranks>::template share<Group>(how);
    const bool fits = how.layout.count <= Body<Ranks>::template max_elements<Group>(how) &&
                      (pairs_from == 0 || share * Index{sizeof(typename R::Type)} < pairs_from);
    return fits ? Body<Ranks>::template packets<Group>(how) : 0;
  }
  template <int... Ranks>
  static Index packets_for(RankCounts<Ranks...>, const PeerWork<R>& how) {
    const int kernel = Counts::kernel_for(how.peers.ranks);
    return (Index{0} + ... + (kernel == Ranks ? packets<Ranks>(how) : 0));
  }
  template <int... Ranks>
  static cudaError_t load_all(RankCounts<Ranks...>) {
    cudaError_t result = cudaSuccess;
    const auto load = [&]<class P>(std::type_identity<P>) {
      const auto good = [&](cudaError_t e) {
        if (result == cudaSuccess) result = e;
      };
      if constexpr (!one_kernel) (good(CudaExecutor::load<Group, Body<Ranks, P>>()), ...);
      good(CudaExecutor::load<Group, AnyBody<P>>());
    };
    load(std::type_identity<Proto>{});
    if constexpr (pairs_from > 0) load(std::type_identity<typename Proto::Pairs>{});
    return result;
  }
  static int load(int device) {
    return on_device(device, [] { return load_all(Counts{}); });
  }
  static inline KernelLoader loader{&load, nullptr};
  static inline const bool once = [] {
    PeerKernels<Op, Algo, Proto, R>::launch = &launch;
    PeerKernels<Op, Algo, Proto, R>::packets_in_group = [](const PeerWork<R>& how) {
      return packets_for(Counts{}, how);
    };
    loader.next = ComposedKernels<Op, Algo, Proto>::first;
    ComposedKernels<Op, Algo, Proto>::first = &loader;
    return true;
  }();
};

}  // namespace ccl::detail
