#pragma once

#include <ccl/algo/one_shot.hpp>
#include <ccl/detail/exec/device_shape.cuh>
#include <ccl/detail/rows/fused_op.hpp>
#include <ccl/detail/rows/prims.hpp>
#include <ccl/detail/rows/registry.hpp>

namespace ccl::detail {

/// Launch with one block per row, and a few tiles per warp of it. The instruction issue of a
/// multiprocessor limits a row.
///
/// Rows of 7168 bf16 with two tiles per lane are 6 % faster than with one tile for each of twice
/// the lanes.
template <class Algo, class Proto, class P, class E>
struct RegisteredKernels<RowKernels<Algo, Proto, P, E>> {
  using Kernels = RowKernels<Algo, Proto, P, E>;
  using Work = RowWork<P, E>;
  using Group = WarpLanes;
  static constexpr int max_lanes = P::Wire::max_lanes;
  /// `Lanes` is the maximum lanes of a block. With fewer lanes, each lane has registers for more of
  /// a row.
  template <int Ranks, int Tiles, int Lanes = max_lanes>
  using Body = RowBody<AllReduceRows, cuda::std::conditional_t<Ranks == 1, OneShot, Algo>, Proto, P,
                       E, Ranks, Tiles, (Lanes < max_lanes ? Lanes : max_lanes)>;
  static constexpr int few = P::Wire::per_cell < 8 ? 2 : 1;  // tiles per lane of a short row
  template <int Ranks>
  using Short = Body<Ranks, few, 768>;
  template <int Ranks>
  using Middle = Body<Ranks, 2 * few, 640>;
  template <int Ranks>
  using Long = Body<Ranks, 4>;
  template <int Ranks>
  using Prims = typename Long<Ranks>::template Prims<Group>;
  template <int... Ranks>
  static RankCounts<1, Ranks...> with_one(RankCounts<Ranks...>);
  using Counts = decltype(with_one(typename Algo::RankCounts::Kernels{}));
  /// Returns the maximum tiles of a row.
  template <class Body>
  static constexpr int held() {
    return Body::max_lanes / Group::width * Body::tiles;
  }

  static int launch(const Work& work, const DeviceTarget& target) {
    return on_device(target.device, [&] { return for_ranks(Counts{}, work, target); });
  }
  template <int... Ranks>
  static cudaError_t for_ranks(RankCounts<Ranks...>, const Work& work, const DeviceTarget& target) {
    cudaError_t result = cudaErrorInvalidValue;
    const int kernel = Counts::kernel_for(work.peers.ranks);
    (void)((kernel == Ranks && (result = launch_all<Ranks>(work, target), true)) || ...);
    return result;
  }
  /// Launches the rows in as many parts as the scratch requires.
  template <int Ranks>
  static cudaError_t launch_all(const Work& how, const DeviceTarget& target) {
    Index most = how.rows;
    if (Ranks > 1)
      most = how.peers.half_packets / Prims<Ranks>::row_packets(how.length, how.peers.ranks);
    if (most < 1) return cudaErrorInvalidValue;
    const int tiles = Prims<Ranks>::tiles_of(how.length);
    for (Index at = 0; at < how.rows; at += most) {
      Work work = how;
      work.first_row += at;
      work.input += at * how.length;
      if (at > 0) work.watch.phases = PhaseLog::further(how.watch.phases);
      work.rows = int(how.rows - at < most ? how.rows - at : most);
      const cudaError_t e =
          tiles <= held<Short<Ranks>>()    ? launch_one<Ranks, Short<Ranks>>(work, tiles, target)
          : tiles <= held<Middle<Ranks>>() ? launch_one<Ranks, Middle<Ranks>>(work, tiles, target)
                                           : launch_one<Ranks, Long<Ranks>>(work, tiles, target);
      if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
  }
  template <int Ranks, class Runs>
  static cudaError_t launch_one(Work& work, int tiles, const DeviceTarget& target) {
    // Blocks without a row of their own help to push and to reduce. Two blocks per row are faster
    // than one or eight.
    //
    // Blocks of this size fill a multiprocessor. With more than 64 blocks, the next launch has no
    // room to begin early (16 rows of 7168 on 4 H200: 2.7 us faster with 64 blocks).
    const Index helped = 2 * Index{work.rows} < 64 ? 2 * Index{work.rows} : 64;
    Index blocks = Ranks > 1 && helped > work.rows ? helped : work.rows;
    if (target.max_blocks < blocks) blocks = target.max_blocks;
    if (Ranks > 1 && work.epoch.count < blocks) blocks = work.epoch.count;
    work.blocks = int(blocks);
    work.channels = int(blocks) * div_up(tiles, Runs::tiles);
    return CudaExecutor::launch<Group, Runs>(work, {work.channels, work.blocks, target.share},
                                             target.stream);
  }
  template <int... Ranks>
  static Index packets_for(RankCounts<Ranks...>, int length, int ranks) {
    const int kernel = Counts::kernel_for(ranks);
    Index packets = 0;
    ((packets += kernel == Ranks ? Prims<Ranks>::row_packets(length, ranks) : 0), ...);
    return packets;
  }
  template <int... Ranks>
  static cudaError_t load_all(RankCounts<Ranks...>) {
    cudaError_t result = cudaSuccess;
    const auto good = [&](cudaError_t e) {
      if (result == cudaSuccess) result = e;
    };
    (good(CudaExecutor::load<Group, Short<Ranks>>()), ...);
    (good(CudaExecutor::load<Group, Middle<Ranks>>()), ...);
    (good(CudaExecutor::load<Group, Long<Ranks>>()), ...);
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
    Kernels::max_length = held<Long<1>>() * Prims<1>::tile_elements;
    using Of = ComposedKernels<FusedOp<P, E>, Algo, Proto>;
    loader.next = Of::first;
    Of::first = &loader;
    return true;
  }();
};

}  // namespace ccl::detail
