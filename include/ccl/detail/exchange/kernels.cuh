#pragma once

#include <ccl/detail/exchange/body.hpp>
#include <ccl/detail/exchange/counted_body.hpp>
#include <ccl/detail/exchange/direct.hpp>
#include <ccl/detail/exchange/packet.hpp>
#include <ccl/detail/exchange/registry.hpp>
#include <ccl/detail/exec/device_shape.cuh>
#include <ccl/detail/wire/context.hpp>
#include <ccl/types/operations.hpp>

namespace ccl::detail {

/// Returns the number of groups that share the peers of a channel.
template <class Group, class Body, class Algo>
int servers_of(const ExchangeWork& work, const DeviceTarget& target) {
  if constexpr (requires { Algo::serves_by_turns; }) {
    return work.servers_on(target.max_blocks, Body::max_lanes / Group::width);
  }
  return 1;
}

template <class Algo, class Proto>
struct RegisteredKernels<ExchangeKernels<Algo, Proto>> {
  template <int Align>
  using Body = ExchangeBody<AllToAllV, Algo, Proto, Align>;
  using Group = LanesOf<Proto>;

  static int launch(const ExchangeWork& how, Index bytes, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      ExchangeWork work = how;
      // Each message has channels by its own size, because the largest message differs between
      // ranks.
      work.channel_bytes = channel_worth<Group>(target);
      Word bits = 16;
      for (int m = 0; m < work.messages; ++m) {
        bits |= reinterpret_cast<cuda::std::uintptr_t>(work.message[m].data);
      }
      return with_alignment<Bytes>(lowest(bits), [&]<int Align>(Aligned<Align>) {
        return launch_aligned<Group, Body<Align>>(work, bytes, target);
      });
    });
  }
  template <class Lanes, class Runs>
  static cudaError_t launch_aligned(ExchangeWork& work, Index bytes, const DeviceTarget& target) {
    if (const cudaError_t e = check_slices<Lanes, Runs>(work); e != cudaSuccess) return e;
    CudaShape shape = device_shape<Lanes, Runs::max_lanes>(bytes, work.channels, target);
    work.channels = shape.channels;
    work.servers = servers_of<Lanes, Runs, Algo>(work, target);
    shape = device_shape<Lanes, Runs::max_lanes>(work.channels * work.servers, target);
    return CudaExecutor::launch<Lanes, Runs>(work, shape, target.stream);
  }
  static int load(int device) {
    return on_device(device, [] {
      return for_alignments<Bytes>(
          []<int Align>(Aligned<Align>) { return CudaExecutor::load<Group, Body<Align>>(); });
    });
  }
  static inline const bool once = [] {
    ExchangeKernels<Algo, Proto>::launch = &launch;
    ExchangeKernels<Algo, Proto>::load = &load;
    return true;
  }();
};

/// Shape for plain stores: one block per ring, as far as the target and the state allow.
/// Receives alone add blocks only beyond the sends.
template <class Algo, class Proto>
struct PeerExchangeShape {
  using Group = BlockLanes<512>;
  template <int Most>
  using Exchange = DirectExchange<Group, Most, notes_of<Algo, Group>>;
  template <int Most>
  using BodyFor = PeerExchangeBody<Algo, Exchange<Most>::template Over, Most>;
  template <int Align>
  using Body = BodyFor<max_unrolled_ranks>;

  template <int Most>
  static cudaError_t launch(BasicPeerExchangeWork<Most>& work, const DeviceTarget& target) {
    using Runs = BodyFor<Most>;
    const CudaShape shape = spread<Group, Runs, Runs::max_lanes>(work, target);
    if (CudaExecutor::has_bulk_copies()) {
      work.shared_bytes = sizeof(BulkCopyMemory);
      work.by_engine = DirectDivision<Most>::suits_engine(work);
    }
    return CudaExecutor::launch<Group, Runs>(work, shape, target.stream);
  }
  template <class Lanes, class Runs, int MaxLanes>
  static CudaShape spread(typename Runs::Work& work, const DeviceTarget& target) {
    Index out = 0, in = 0;
    for (int p = 0; p < work.peers.ranks; ++p) {
      if (p == work.peers.rank) continue;
      out += Rings::used(work.out[p].bytes, work.rings);
      in += Rings::used(work.in[p].bytes, work.rings);
    }
    // Blocks that empty slots are others than those that fill the peers' buffers.
    const bool apart = DirectDivision<Runs::Work::max_ranks>::receives_slots(work);
    Index rings = apart ? out + in : out > in ? out : in;
    Index most = target.max_blocks < work.state.count ? target.max_blocks : work.state.count;
    const Message& own = work.in[work.peers.rank];
    if (own.bytes > 0 && own.data != work.out[work.peers.rank].data) {
      if (!work.in_turns && !apart) most = Rings::best_beside_own(work.peers.ranks, most);
      const Index copies = Rings::used(own.bytes, work.rings);
      rings = rings < copies ? copies : rings;
    }
    work.channels = work.blocks = int(rings < 1 ? 1 : rings < most ? rings : most);
    Runs::template prepare<Lanes>(work);
    return {work.channels, work.blocks, target.share};
  }
  static Index max_bytes(const PeerView& peers, int max_rings) {
    return DirectExchange<Group>::max_bytes(peers, max_rings);
  }
  static cudaError_t load() {
    constexpr int shared = sizeof(BulkCopyMemory);
    const cudaError_t e = CudaExecutor::load<Group, BodyFor<max_unrolled_ranks>>(shared);
    return e != cudaSuccess ? e : CudaExecutor::load<Group, BodyFor<max_view_ranks>>(shared);
  }
};

/// Shape for packets: one warp per tile, spread over as many blocks as possible.
template <class Algo, class Proto>
  requires(Proto::carries_flags)
struct PeerExchangeShape<Algo, Proto> {
  template <int Align, int Most = max_unrolled_ranks>
  using Exchange = PacketExchange<WarpLanes, Proto, Align, Most, notes_of<Algo, WarpLanes>>;
  template <int Align, int Most = max_unrolled_ranks>
  using Body = PeerExchangeBody<Algo, Exchange<Align, Most>::template Over, Most>;
  /// One kernel serves buffers of any alignment.
  using Wide = Body<any_align, max_view_ranks>;

  static cudaError_t launch(WidePeerExchangeWork& work, const DeviceTarget& target) {
    const CudaShape shape = spread<WarpLanes, Wide, Wide::max_lanes>(work, target);
    return CudaExecutor::launch<WarpLanes, Wide>(work, shape, target.stream);
  }
  static cudaError_t launch(PeerExchangeWork& work, const DeviceTarget& target) {
    return with_alignment<Bytes>(alignment(work), [&]<int Align>(Aligned<Align>) {
      using Runs = Body<Align>;
      const CudaShape shape = spread<WarpLanes, Runs, Runs::max_lanes>(work, target);
      return CudaExecutor::launch<WarpLanes, Runs>(work, shape, target.stream);
    });
  }
  template <class Lanes, class Runs, int MaxLanes>
  static CudaShape spread(typename Runs::Work& work, const DeviceTarget& target) {
    constexpr Index max_warps = MaxLanes / Lanes::width;
    const Index out = Exchange<1>::tiles(work.out, work.peers.ranks);
    const Index in = Exchange<1>::tiles(work.in, work.peers.ranks);
    const Index tiles = out > in ? out : in;
    Index blocks = target.max_blocks < work.state.count ? target.max_blocks : work.state.count;
    if (tiles < blocks) blocks = tiles;
    Index warps = div_up(tiles, blocks);
    warps = warps < max_warps ? warps : max_warps;
    work.blocks = int(blocks);
    work.channels = int(blocks * warps);
    Runs::template prepare<Lanes>(work);
    return {work.channels, work.blocks, target.share};
  }
  static Index max_bytes(const PeerView& peers, int) { return Exchange<1>::max_bytes(peers); }
  static cudaError_t load() {
    const cudaError_t e = for_alignments<Bytes>(
        []<int Align>(Aligned<Align>) { return CudaExecutor::load<WarpLanes, Body<Align>>(); });
    return e != cudaSuccess ? e : CudaExecutor::load<WarpLanes, Wide>();
  }
};

template <class Algo, class Proto>
struct RegisteredKernels<PeerExchangeKernels<Algo, Proto>> {
  using Kernels = PeerExchangeKernels<Algo, Proto>;
  using Shape = PeerExchangeShape<Algo, Proto>;
  template <int Most>
  static int launch(const BasicPeerExchangeWork<Most>& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      BasicPeerExchangeWork<Most> work = how;
      return Shape::launch(work, target);
    });
  }
  static int load(int device) { return on_device(device, &Shape::load); }
  static inline const bool once = [] {
    Kernels::launch = &launch<max_unrolled_ranks>;
    Kernels::launch_wide = &launch<max_view_ranks>;
    Kernels::load = &load;
    Kernels::max_bytes = &Shape::max_bytes;
    return true;
  }();
};

/// Launch of blocks whose warps move the tiles. The largest possible messages determine the number
/// of blocks.
template <class Algo, class Proto>
struct RegisteredKernels<CountedKernels<Algo, Proto>> {
  using Kernels = CountedKernels<Algo, Proto>;
  using Group = BlockLanes<512>;
  template <int Align>
  using Body = CountedBody<Algo, Proto, Align>;
  using Wide = CountedBody<Algo, Proto, any_align, max_view_ranks>;
  using Division = typename CountedExchange<Group, Proto, 1>::Division;

  static int launch(const CountedWork& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      CountedWork work = how;
      Division::assign_tiles(work);
      const Index rows = work.recv_stride < work.most ? work.recv_stride : work.most;
      const Index tiles = work.peers.ranks * Division::tiles(work, rows);
      Index blocks = target.max_blocks;
      if (work.peers.ranks > 1 && work.state.count < blocks) blocks = work.state.count;
      if (tiles < blocks) blocks = tiles < 1 ? 1 : tiles;
      work.channels = work.blocks = int(blocks);
      const CudaShape shape{work.channels, work.blocks, target.share};
      const Word bits = reinterpret_cast<cuda::std::uintptr_t>(work.send) |
                        reinterpret_cast<cuda::std::uintptr_t>(work.recv) | Word(work.row_bytes);
      if (work.peers.ranks > max_unrolled_ranks) {
        return CudaExecutor::launch<Group, Wide>(work, shape, target.stream);
      }
      if (bits % 16 == 0) return CudaExecutor::launch<Group, Body<16>>(work, shape, target.stream);
      return CudaExecutor::launch<Group, Body<1>>(work, shape, target.stream);
    });
  }
  static int load(int device) {
    return on_device(device, [] {
      cudaError_t e = CudaExecutor::load<Group, Body<16>>();
      if (e == cudaSuccess) e = CudaExecutor::load<Group, Body<1>>();
      return e != cudaSuccess ? e : CudaExecutor::load<Group, Wide>();
    });
  }
  static int max_rows(const CountedWork& how) {
    CountedWork work = how;
    Division::assign_tiles(work);
    return Division::max_rows(work);
  }
  static inline const bool once = [] {
    Kernels::launch = &launch;
    Kernels::load = &load;
    Kernels::max_rows = &max_rows;
    return true;
  }();
};

}  // namespace ccl::detail
