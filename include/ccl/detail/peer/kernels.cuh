#pragma once

#include <ccl/detail/exec/device_shape.cuh>
#include <ccl/detail/lanes/pair_lane.hpp>
#include <ccl/detail/peer/body.hpp>
#include <ccl/detail/peer/registry.hpp>
#include <ccl/detail/peer/wide_prims.hpp>

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

/// All kernels of a composition with a reduction `R`. What chooses among them is compiled once for
/// `R`.
template <class R>
struct PeerKernelTable {
  using Kernels = PeerKernelsOf<R>;
  /// Returns the ranks of the kernels that run so many ranks.
  int (*kernel_for)(int ranks);
  const Kernels *plain, *pairs;  // of the protocol, and of its pairs; null: it has none
  int count;                     // of either
  Kernels wide;                  // receives the number of ranks; no ranks: there is none
  /// Minimum bytes of a share that moves in pairs: see `TwoShot::pairs_from`. 0: no pairs.
  Index pairs_from;
  int max_lanes;

  /// Returns the kernels for `ranks` ranks, of the protocol or of its pairs. The shape has no ranks
  /// if there are none.
  Kernels kernels_for(int ranks, bool in_pairs) const {
    if (ranks > max_unrolled_ranks && ranks <= wide.shape.ranks) {
      Kernels of = wide;
      of.shape.ranks = ranks;
      return of;
    }
    const int kernel = kernel_for(ranks);
    const Kernels* const of = in_pairs && pairs != nullptr ? pairs : plain;
    for (int n = 0; n < count; ++n) {
      if (of[n].shape.ranks == kernel) return of[n];
    }
    return {};
  }
  bool moves_in_pairs(const Kernels& of, const PeerWork<R>& how) const {
    if (how.peers.ranks > max_unrolled_ranks) return false;
    const Index share = of.shape.share(how.layout, how.peers.ranks);
    return pairs_from > 0 && share * Index{sizeof(typename R::Type)} >= pairs_from;
  }
  /// Returns the kernels that run the work.
  Kernels kernels_of(const PeerWork<R>& how) const {
    const Kernels of = kernels_for(how.peers.ranks, false);
    return of.shape.ranks > 0 && moves_in_pairs(of, how) ? kernels_for(how.peers.ranks, true) : of;
  }
  int launch(const PeerWork<R>& how, const DeviceTarget& target) const {
    const Kernels of = kernels_of(how);
    if (of.shape.ranks == 0) return cudaErrorInvalidValue;
    return on_device(target.device, [&] { return launch_parts(of, max_lanes, how, target); });
  }
  Index max_elements(const PeerWork<R>& how) const {
    const Kernels of = kernels_of(how);
    return of.shape.ranks == 0 ? 0 : of.shape.max_elements(how.layout, how.peers);
  }
  Index packets_in_group(const PeerWork<R>& how) const {
    if (how.peers.ranks > max_unrolled_ranks) return 0;
    const Kernels of = kernels_for(how.peers.ranks, false);
    if (of.shape.ranks == 0 || moves_in_pairs(of, how)) return 0;
    if (how.layout.count > of.shape.max_elements(how.layout, how.peers)) return 0;
    const Index share = of.shape.share(how.layout, how.peers.ranks);
    return div_up<Index>(of.shape.half_packets(share), 8) * 8;
  }
  int load(int device) const {
    return on_device(device, [this] {
      cudaError_t result = CudaExecutor::load_alone<R>();
      const auto load = [&result](typename Kernels::Kernel kernel) {
        if (result == cudaSuccess && kernel != nullptr) result = CudaExecutor::load_kernel(kernel);
      };
      const auto load_all = [&load](const Kernels& of) {
        load(of.aligned);
        load(of.words);
        load(of.any);
      };
      for (int n = 0; n < count; ++n) {
        load_all(plain[n]);
        if (pairs != nullptr) load_all(pairs[n]);
      }
      load_all(wide);
      return result;
    });
  }
};

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

  static const PeerKernelTable<R>& table() { return table_of(Counts{}); }
  template <int... Ranks>
  static const PeerKernelTable<R>& table_of(RankCounts<Ranks...>) {
    constexpr int count = sizeof...(Ranks);
    static const PeerKernelsOf<R> plain[count + 1] = {kernels<Ranks, Proto>()...};
    static const PeerKernelsOf<R> pairs[count + 1] = {kernels_in_pairs<Ranks>()...};
    static const PeerKernelTable<R> of{
        &Counts::kernel_for, plain,    pairs_from > 0 ? pairs : nullptr, count, wide_kernels(),
        pairs_from,          max_lanes};
    return of;
  }
  /// One kernel serves buffers of any alignment.
  static PeerKernelsOf<R> wide_kernels() {
    if constexpr (wide > 0) {
      using Wide = PeerBody<Op, Algo, Proto, any_align, R, max_view_ranks>;
      PeerShape shape = Wide::template shape<Group>();
      shape.ranks = wide;
      return {shape, nullptr, nullptr, run_collective<Group, Wide>};
    }
    return {};
  }
  template <int Ranks>
  static PeerKernelsOf<R> kernels_in_pairs() {
    if constexpr (pairs_from > 0) return kernels<Ranks, typename Proto::Pairs>();
    return {};
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

  static int launch(const PeerWork<R>& how, const DeviceTarget& target) {
    return table().launch(how, target);
  }
  static Index max_elements(const PeerWork<R>& how) { return table().max_elements(how); }
  static Index packets_in_group(const PeerWork<R>& how) { return table().packets_in_group(how); }
  template <class Body>
  static CudaShape spread(PeerWork<R>& work, int block_lanes, const DeviceTarget& target) {
    return spread_tiles(work, Body::template tiles<Group>(work), block_lanes, target);
  }
  static int load(int device) { return table().load(device); }
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
