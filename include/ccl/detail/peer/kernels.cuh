#pragma once

#include <ccl/detail/exec/device_shape.cuh>
#include <ccl/detail/lanes/pair_lane.hpp>
#include <ccl/detail/peer/body.hpp>
#include <ccl/detail/peer/registry.hpp>
#include <ccl/detail/peer/wide_prims.hpp>

#include <span>

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

/// Kernels for a number of ranks and less.
template <class R>
struct PeerKernelsOf {
  using Kernel = void (*)(PeerWork<R>, int channels);
  PeerShape shape{};
  Kernel aligned = nullptr;  // null: none
  Kernel words = nullptr;    // data that is only moved, aligned to 4 bytes; null: none
  Kernel any = nullptr;      // buffers and counts of any alignment
};

/// Assigns one warp per tile, spread over as many blocks as possible. Measured on H200.
template <class R>
CudaShape spread_tiles(PeerWork<R>& work, Index tiles, int max_lanes, const DeviceTarget& target) {
  const Index max_warps = max_lanes / WarpLanes::width;
  Index blocks = target.max_blocks < work.epoch.count ? target.max_blocks : work.epoch.count;
  if (tiles < blocks) blocks = tiles;
  Index warps = div_up(tiles, blocks);
  warps = warps < max_warps ? warps : max_warps;
  work.blocks = int(blocks);
  work.channels = int(blocks * warps);
  return {work.channels, int(blocks), target.share};
}
/// Launches a message in as many parts as the scratch requires. Ranks whose buffers have other
/// alignments make the same parts.
template <class R>
cudaError_t launch_parts(const PeerKernelsOf<R>& of, int max_lanes, const PeerWork<R>& how,
                         const DeviceTarget& target) {
  constexpr Index size = sizeof(typename R::Type);
  const Index most = of.shape.max_elements(how.layout, how.peers);
  if (most < 1) return cudaErrorInvalidValue;
  const int align = alignment(how);
  const auto kernel = align == 16 && of.aligned != nullptr ? of.aligned
                      : align >= 4 && of.words != nullptr  ? of.words
                                                           : of.any;
  for (Index at = 0; at < how.layout.count; at += most) {
    PeerWork<R> work = how;
    work.rows = of.shape.ranks;
    work.input = static_cast<const char*>(how.input) + at * size;
    work.output = static_cast<char*>(how.output) + at * size;
    work.layout.count = how.layout.count - at < most ? how.layout.count - at : most;
    if (at > 0) work.watch.phases = PhaseLog::further(how.watch.phases);
    const Index tiles = of.shape.tiles(of.shape.share(work.layout, work.peers.ranks));
    const CudaShape shape = spread_tiles(work, tiles, max_lanes, target);
    const int lanes = shape.channels / shape.blocks * WarpLanes::width;
    const cudaError_t e = CudaExecutor::launch_kernel(kernel, {shape.blocks, lanes}, shape.share,
                                                      target.stream, work, shape.channels);
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

template <class Op, class Algo, class Proto, class R>
struct RegisteredKernels<PeerKernels<Op, Algo, Proto, R>> {
  using Group = WarpLanes;
  using Counts = typename Algo::RankCounts::Kernels;
  using Range = RangeOfRanks<Counts>;
  /// Maximum ranks of the kernel that receives their number; 0: there is none.
  static constexpr int wide = [] {
    if constexpr (requires { Algo::RankCounts::wide; }) return Algo::RankCounts::wide;
    return 0;
  }();
  template <int Ranks, class P = Proto>
  using Body = PeerBody<Op, Algo, P, 16, R, Ranks>;
  /// Kernel for buffers of any alignment, and for all numbers of ranks. Counts of elements that
  /// fill no packets are common, and take twice as long in it: 3.8 us for one float among 2 H200,
  /// and 1.9 us in a kernel for two ranks.
  template <class P = Proto>
  using AnyBody = PeerBody<Op, Algo, P, any_align, R, Range::most, Range::fewest>;
  static constexpr bool one_kernel = requires { Algo::one_kernel; };
  static constexpr int max_lanes = AnyBody<>::max_lanes;
  /// Minimum bytes of a share that moves in pairs: see `TwoShot::pairs_from`. 0: no pairs.
  static constexpr Index pairs_from = [] {
    if constexpr (requires { Algo::template pairs_from<Op>; }) {
      if (moves_pairs<Proto, Group, typename R::Type>()) return Algo::template pairs_from<Op>;
    }
    return Index{0};
  }();

  /// True if a launch of so many ranks takes the kernel that receives their number.
  static bool runs_wide(int ranks) { return ranks > max_unrolled_ranks && ranks <= wide; }
  /// Returns the kernels for `ranks` ranks, of the protocol or of its pairs. The shape has no ranks
  /// if there are none.
  static PeerKernelsOf<R> kernels_for(int ranks, bool in_pairs) {
    if constexpr (wide > 0) {
      if (runs_wide(ranks)) return wide_kernels(ranks);
    }
    const PeerKernelsOf<R>* const of = find(Counts{}, Counts::kernel_for(ranks), in_pairs);
    return of != nullptr ? *of : PeerKernelsOf<R>{};
  }
  /// One kernel serves buffers of any alignment.
  static PeerKernelsOf<R> wide_kernels(int ranks) {
    using Wide = PeerBody<Op, Algo, Proto, any_align, R, max_view_ranks>;
    PeerShape shape = Wide::template shape<Group>();
    shape.ranks = ranks;
    return {shape, nullptr, nullptr, run_collective<Group, Wide>};
  }
  template <int... Ranks>
  static const PeerKernelsOf<R>* find(RankCounts<Ranks...>, int kernel, bool in_pairs) {
    if constexpr (sizeof...(Ranks) > 0) {
      static const PeerKernelsOf<R> plain[] = {kernels<Ranks, Proto>()...};
      std::span<const PeerKernelsOf<R>> all = plain;
      if constexpr (pairs_from > 0) {
        static const PeerKernelsOf<R> pairs[] = {kernels<Ranks, typename Proto::Pairs>()...};
        if (in_pairs) all = pairs;
      }
      for (const PeerKernelsOf<R>& of : all) {
        if (of.shape.ranks == kernel) return &of;
      }
    }
    return nullptr;
  }
  template <int Ranks, class P>
  static PeerKernelsOf<R> kernels() {
    constexpr PeerShape shape = Body<Ranks, P>::template shape<Group>();
    if constexpr (one_kernel) {
      return {shape, nullptr, nullptr, run_collective<Group, AnyBody<P>>};
    } else {
      PeerKernelsOf<R> of{shape, run_collective<Group, Body<Ranks, P>>, nullptr,
                          run_collective<Group, PeerBody<Op, Algo, P, min_align<R>, R, Ranks>>};
      if constexpr (!reduces<R>) {
        of.words = run_collective<Group, PeerBody<Op, Algo, P, 4, R, Ranks>>;
      }
      return of;
    }
  }

  static bool moves_in_pairs(const PeerKernelsOf<R>& plain, const PeerWork<R>& how) {
    if (how.peers.ranks > max_unrolled_ranks) return false;
    const Index share = plain.shape.share(how.layout, how.peers.ranks);
    return pairs_from > 0 && share * Index{sizeof(typename R::Type)} >= pairs_from;
  }
  static int launch(const PeerWork<R>& how, const DeviceTarget& target) {
    PeerKernelsOf<R> of = kernels_for(how.peers.ranks, false);
    if (of.shape.ranks == 0) return cudaErrorInvalidValue;
    if (moves_in_pairs(of, how)) of = kernels_for(how.peers.ranks, true);
    return on_device(target.device, [&] { return launch_parts(of, max_lanes, how, target); });
  }
  static Index max_elements(const PeerWork<R>& how) {
    PeerKernelsOf<R> of = kernels_for(how.peers.ranks, false);
    if (of.shape.ranks == 0) return 0;
    if (moves_in_pairs(of, how)) of = kernels_for(how.peers.ranks, true);
    return of.shape.max_elements(how.layout, how.peers);
  }
  template <class Body>
  static CudaShape spread(PeerWork<R>& work, int block_lanes, const DeviceTarget& target) {
    return spread_tiles(work, Body::template tiles<Group>(work), block_lanes, target);
  }
  static Index packets_in_group(const PeerWork<R>& how) {
    if (how.peers.ranks > max_unrolled_ranks) return 0;
    const PeerKernelsOf<R> of = kernels_for(how.peers.ranks, false);
    if (of.shape.ranks == 0 || moves_in_pairs(of, how)) return 0;
    if (how.layout.count > of.shape.max_elements(how.layout, how.peers)) return 0;
    const Index share = of.shape.share(how.layout, how.peers.ranks);
    return div_up<Index>(of.shape.half_packets(share), 8) * 8;
  }
  static int load(int device) {
    return on_device(device, [] {
      cudaError_t result = CudaExecutor::load_alone<R>();
      const auto load = [&result](typename PeerKernelsOf<R>::Kernel kernel) {
        if (result == cudaSuccess && kernel != nullptr) result = CudaExecutor::load_kernel(kernel);
      };
      const auto load_all = [&load](const PeerKernelsOf<R>& of) {
        load(of.aligned);
        load(of.words);
        load(of.any);
      };
      for (int ranks = 1; ranks <= Range::most; ++ranks) {
        for (const bool in_pairs : {false, true}) {
          const PeerKernelsOf<R> of = kernels_for(ranks, in_pairs);
          if (of.shape.ranks == ranks) load_all(of);
        }
      }
      if constexpr (wide > 0) load_all(wide_kernels(wide));
      return result;
    });
  }
  static inline KernelLoader loader{&load, nullptr};
  static inline const bool once = [] {
    PeerKernels<Op, Algo, Proto, R>::launch = &launch;
    PeerKernels<Op, Algo, Proto, R>::packets_in_group = &packets_in_group;
    PeerKernels<Op, Algo, Proto, R>::max_elements = &max_elements;
    loader.next = ComposedKernels<Op, Algo, Proto>::first;
    ComposedKernels<Op, Algo, Proto>::first = &loader;
    return true;
  }();
};

}  // namespace ccl::detail
