#pragma once

#include <ccl/algo/one_shot.hpp>
#include <ccl/collective/device_shape.cuh>
#include <ccl/fused.hpp>
#include <ccl/proto/row_prims.hpp>

namespace ccl::detail {

/// A block for each row, a warp for each tile of it; more tiles for each where the warps are too
/// few.
template <class Algo, class Proto, class P, class E>
struct Enrolled<RowKernels<Algo, Proto, P, E>> {
  using Kernels = RowKernels<Algo, Proto, P, E>;
  using Work = RowWork<P, E>;
  using Group = WarpLanes;
  template <int Ranks, int Tiles>
  using Body = RowBody<AllReduceRows, cuda::std::conditional_t<Ranks == 1, OneShot, Algo>, Proto, P,
                       E, Ranks, Tiles>;
  template <int Ranks>
  using Prims = typename Body<Ranks, 1>::template Prims<Group>;
  template <int... Ranks>
  static RankCounts<1, Ranks...> with_one(RankCounts<Ranks...>);
  using Counts = decltype(with_one(typename Algo::RankCounts{}));
  static constexpr int most_warps = P::Wire::most_lanes / Group::width;
  static constexpr int most_tiles = 4;  // of a warp

  static int launch(const Work& work, const DeviceTarget& target) {
    return on_device(target.device, [&] { return for_ranks(Counts{}, work, target); });
  }
  template <int... Ranks>
  static cudaError_t for_ranks(RankCounts<Ranks...>, const Work& work, const DeviceTarget& target) {
    cudaError_t result = cudaErrorInvalidValue;
    (void)((work.peers.ranks == Ranks && (result = launch_all<Ranks>(work, target), true)) || ...);
    return result;
  }
  /// Rows in as many launches as the scratch wants.
  template <int Ranks>
  static cudaError_t launch_all(const Work& how, const DeviceTarget& target) {
    Index most = how.rows;
    if (Ranks > 1) most = how.peers.half_packets / Prims<Ranks>::row_packets(how.length);
    if (most < 1) return cudaErrorInvalidValue;
    const int tiles = Prims<Ranks>::tiles_of(how.length);
    for (Index at = 0; at < how.rows; at += most) {
      Work work = how;
      work.first_row += at;
      work.input += at * how.length;
      work.rows = int(how.rows - at < most ? how.rows - at : most);
      const cudaError_t e = tiles <= most_warps       ? launch_one<Ranks, 1>(work, tiles, target)
                            : tiles <= 2 * most_warps ? launch_one<Ranks, 2>(work, tiles, target)
                                                      : launch_one<Ranks, 4>(work, tiles, target);
      if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
  }
  template <int Ranks, int Tiles>
  static cudaError_t launch_one(Work& work, int tiles, const DeviceTarget& target) {
    // Blocks without a row of their own help to push and to reduce: two for each row are faster
    // than one or eight. Blocks of this size fill a multiprocessor: where they take more than 64,
    // the next launch has no room to move in early (16 rows of 7168 on 4 H200: 64 blocks 2.7 us
    // faster).
    const Index helped = 2 * Index{work.rows} < 64 ? 2 * Index{work.rows} : 64;
    Index blocks = Ranks > 1 && helped > work.rows ? helped : work.rows;
    if (target.most_blocks < blocks) blocks = target.most_blocks;
    if (Ranks > 1 && work.epoch.count < blocks) blocks = work.epoch.count;
    work.crews = int(blocks);
    work.channels = int(blocks) * div_up(tiles, Tiles);
    return CudaExecutor::launch<Group, Body<Ranks, Tiles>>(
        work, {work.channels, work.crews, target.early}, target.stream);
  }
  template <int... Ranks>
  static Index packets_for(RankCounts<Ranks...>, int length, int ranks) {
    Index packets = 0;
    ((packets += ranks == Ranks ? Prims<Ranks>::row_packets(length) : 0), ...);
    return packets;
  }
  template <int... Ranks>
  static cudaError_t load_all(RankCounts<Ranks...>) {
    cudaError_t result = cudaSuccess;
    const auto good = [&](cudaError_t e) {
      if (result == cudaSuccess) result = e;
    };
    (good(CudaExecutor::load<Group, Body<Ranks, 1>>()), ...);
    (good(CudaExecutor::load<Group, Body<Ranks, 2>>()), ...);
    (good(CudaExecutor::load<Group, Body<Ranks, 4>>()), ...);
    return result;
  }
  static int load(int device) {
    return on_device(device, [] { return load_all(Counts{}); });
  }
  static inline KernelLoader loader{&load, nullptr};
  static inline const bool once = [] {
    Kernels::launch = &launch;
    Kernels::row_packets = [](int length, int ranks) {
      return packets_for(Counts{}, length, ranks);
    };
    Kernels::most_length = most_warps * most_tiles * Prims<1>::tile_elements;
    using Of = KernelsOf<FusedOp<P, E>, Algo, Proto>;
    loader.next = Of::first;
    Of::first = &loader;
    return true;
  }();
};

}  // namespace ccl::detail
