#pragma once

// ccl.hpp, and the kernels of the compositions that a translation unit instantiates.

// Primitives are for both sides, and CPU lanes call functions of the host only: nvcc says so for
// each instantiation, at the end of the translation unit.
#pragma nv_diag_suppress 20011, 20013, 20014

#include <ccl/ccl.hpp>
#include <ccl/cuda_executor.cuh>
#include <ccl/device_code.hpp>
#include <ccl/group.hpp>
#include <ccl/proto/copy_bodies.hpp>
#include <ccl/proto/counted_exchange.hpp>
#include <ccl/proto/direct_exchange.hpp>
#include <ccl/proto/exchange_body.hpp>
#include <ccl/proto/packet_exchange.hpp>
#include <ccl/proto/peer_prims.hpp>
#include <ccl/proto/row_prims.hpp>

#include <algorithm>

namespace ccl::detail {

inline const bool has_device_code = program_has_device_code = true;

/// Who works together on a channel: a warp where packets carry flags, since no lane waits for
/// another; many warps where a release is paid for each slice.
template <class Proto, int MaxLanes>
using LanesWithin = cuda::std::conditional_t<
    Proto::carries_flags, WarpLanes,
    cuda::std::conditional_t<(MaxLanes >= 512), BlockLanes<512>, BlockLanes<128>>>;
template <class Proto, class Body>
using LanesOf = LanesWithin<Proto, Body::max_lanes>;

/// How many channels a message keeps busy, and on how many blocks they lie. Measured on H200: a
/// channel is worth it from 1 KiB with flags and from 16 KiB without; up to 4 warps share a block,
/// which starts sooner than more blocks do.
template <class Group>
Index channel_worth(const DeviceTarget& target) {
  constexpr Index alone = Group::width == 32 ? 1024 : Index{32} * Group::width;
  return alone < target.channel_bytes ? target.channel_bytes : alone;
}
template <class Group, int MaxLanes>
CudaShape device_shape(Index bytes, int channels, const DeviceTarget& target) {
  constexpr int groups = MaxLanes / Group::width;
  const int most = target.most_blocks < channels ? target.most_blocks : channels;
  Index use = div_up(bytes, channel_worth<Group>(target));
  use = use < 1 ? 1 : use < channels ? use : channels;
  Index blocks = div_up<Index>(use, groups < 4 ? groups : 4);
  blocks = blocks < most ? blocks : most;
  if (blocks * groups < use) use = blocks * groups;
  return {int(use), int(blocks), target.early};
}

/// Runs `call` on a device, whichever the thread was at.
template <class F>
cudaError_t on_device(int device, F call) {
  int before = -1;
  if (const cudaError_t e = cudaGetDevice(&before); e != cudaSuccess) return e;
  if (before == device) return call();
  if (const cudaError_t e = cudaSetDevice(device); e != cudaSuccess) return e;
  const cudaError_t result = call();
  (void)cudaSetDevice(before);
  return result;
}

/// Whether slices hold what the lanes move at once; if not, what `Links::finish_on_device` makes an
/// error of.
template <class Group, class Body>
cudaError_t check_slices(const typename Body::Work& work) {
  constexpr Index needed = Body::template least_slice_bytes<Group>;
  if (Index{work.slot_bytes} * work.slice_steps >= needed) return cudaSuccess;
  return cudaError_t(-needed);
}

template <class Group, class Body>
cudaError_t launch_body(typename Body::Work& work, Index bytes, const DeviceTarget& target) {
  if (const cudaError_t e = check_slices<Group, Body>(work); e != cudaSuccess) return e;
  const CudaShape shape = device_shape<Group, Body::max_lanes>(bytes, work.channels, target);
  work.channels = shape.channels;
  return CudaExecutor::launch<Group, Body>(work, shape, target.stream);
}

template <class Kernels>
struct Enrolled;
template <class Call>
struct AsMember;  // of a group

template <class Op, class Algo, class Proto, class R>
struct Enrolled<WireKernels<Op, Algo, Proto, R>> {
  template <int Align, bool Proxied>
  using Body = WireBody<Op, Algo, Proto, Align, R, Proxied>;
  using Group = LanesOf<Proto, Body<16, true>>;

  static int launch(const WireWork<R>& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      WireWork<R> work = how;
      const Index bytes = message_bytes(work);
      if (alignment(work) != 16) return launch_body<Group, Body<1, true>>(work, bytes, target);
      if (work.proxied) return launch_body<Group, Body<16, true>>(work, bytes, target);
      return launch_body<Group, Body<16, false>>(work, bytes, target);
    });
  }
  static int load(int device) {
    return on_device(device, [] {
      cudaError_t e = CudaExecutor::load<Group, Body<16, false>>();
      if (e == cudaSuccess) e = CudaExecutor::load<Group, Body<16, true>>();
      if (e == cudaSuccess) e = CudaExecutor::load<Group, Body<1, true>>();
      return e;
    });
  }
  static inline KernelLoader loader{&load, nullptr};
  static inline const bool once = [] {
    WireKernels<Op, Algo, Proto, R>::launch = &launch;
    loader.next = KernelsOf<Op, Algo, Proto>::first;
    KernelsOf<Op, Algo, Proto>::first = &loader;
    return true;
  }();
};

template <class Op, class Algo, class Proto, class R>
struct Enrolled<PeerKernels<Op, Algo, Proto, R>> {
  template <int Align, int Ranks, class P = Proto>
  using Body = PeerBody<Op, Algo, P, Align, R, Ranks>;
  using Group = WarpLanes;
  /// See `TwoShot::pairs_from`.
  static constexpr Index pairs_from = [] {
    if constexpr (requires { Algo::template pairs_from<Op>; }) {
      if (moves_pairs<Proto, Group, typename R::Type>()) return Algo::template pairs_from<Op>;
    }
    return Index{0};
  }();

  static int launch(const PeerWork<R>& how, const DeviceTarget& target) {
    return on_device(target.device,
                     [&] { return for_ranks(typename Algo::RankCounts{}, how, target); });
  }
  template <int... Ranks>
  static cudaError_t for_ranks(RankCounts<Ranks...>, const PeerWork<R>& how,
                               const DeviceTarget& target) {
    cudaError_t result = cudaErrorInvalidValue;
    (void)((how.peers.ranks == Ranks && (result = launch_for<Ranks>(how, target), true)) || ...);
    return result;
  }
  template <int Ranks>
  static cudaError_t launch_for(const PeerWork<R>& how, const DeviceTarget& target) {
    const bool aligned = alignment(how) == 16;
    if constexpr (pairs_from > 0) {
      using Pairs = typename Proto::Pairs;
      const Index share = Body<16, Ranks>::template share<Group>(how);
      if (share * Index{sizeof(typename R::Type)} >= pairs_from) {
        return aligned ? launch_all<Body<16, Ranks, Pairs>>(how, target)
                       : launch_all<Body<1, Ranks, Pairs>>(how, target);
      }
    }
    return aligned ? launch_all<Body<16, Ranks>>(how, target)
                   : launch_all<Body<1, Ranks>>(how, target);
  }
  /// A message in as many launches as its scratch wants.
  template <class Body>
  static cudaError_t launch_all(const PeerWork<R>& how, const DeviceTarget& target) {
    constexpr Index size = sizeof(typename R::Type);
    const Index most = Body::template most_elements<Group>(how);
    if (most < 1) return cudaErrorInvalidValue;
    for (Index at = 0; at < how.layout.count; at += most) {
      PeerWork<R> work = how;
      work.input = static_cast<const char*>(how.input) + at * size;
      work.output = static_cast<char*>(how.output) + at * size;
      work.layout.count = how.layout.count - at < most ? how.layout.count - at : most;
      if (const cudaError_t e = launch_one<Body>(work, target); e != cudaSuccess) return e;
    }
    return cudaSuccess;
  }
  /// A warp for each tile, on as many multiprocessors as there are; measured on H200.
  template <class Body>
  static cudaError_t launch_one(PeerWork<R>& work, const DeviceTarget& target) {
    constexpr Index most_warps = Body::max_lanes / Group::width;
    const Index tiles = Body::template tiles<Group>(work);
    Index blocks = target.most_blocks < work.epoch.count ? target.most_blocks : work.epoch.count;
    if (tiles < blocks) blocks = tiles;
    Index warps = div_up(tiles, blocks);
    warps = warps < most_warps ? warps : most_warps;
    work.crews = int(blocks);
    work.channels = int(blocks * warps);
    return CudaExecutor::launch<Group, Body>(work, {work.channels, int(blocks), target.early},
                                             target.stream);
  }
  template <int... Ranks>
  static cudaError_t load_all(RankCounts<Ranks...>) {
    cudaError_t result = cudaSuccess;
    const auto good = [&](cudaError_t e) {
      if (result == cudaSuccess) result = e;
    };
    (good(CudaExecutor::load<Group, Body<16, Ranks>>()), ...);
    (good(CudaExecutor::load<Group, Body<1, Ranks>>()), ...);
    if constexpr (pairs_from > 0) {
      using Pairs = typename Proto::Pairs;
      (good(CudaExecutor::load<Group, Body<16, Ranks, Pairs>>()), ...);
      (good(CudaExecutor::load<Group, Body<1, Ranks, Pairs>>()), ...);
    }
    return result;
  }
  static int load(int device) {
    return on_device(device, [] { return load_all(typename Algo::RankCounts{}); });
  }
  static inline KernelLoader loader{&load, nullptr};
  static inline const bool once = [] {
    PeerKernels<Op, Algo, Proto, R>::launch = &launch;
    loader.next = KernelsOf<Op, Algo, Proto>::first;
    KernelsOf<Op, Algo, Proto>::first = &loader;
    return true;
  }();
};

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

template <class Algo, class Proto>
struct Enrolled<ExchangeKernels<Algo, Proto>> {
  template <int Align>
  using Body = ExchangeBody<AllToAllV, Algo, Proto, Align>;
  template <int Align>
  using Group = LanesOf<Proto, Body<Align>>;

  static int launch(const ExchangeWork& how, Index bytes, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      ExchangeWork work = how;
      // The largest message of this rank is not that of its peers: each has channels by its own
      // size.
      work.channel_bytes = channel_worth<Group<16>>(target);
      Word bits = 16;
      for (int m = 0; m < work.begin[1][work.ranks]; ++m) {
        bits |= reinterpret_cast<cuda::std::uintptr_t>(work.message[m].data);
      }
      if (bits % 16 == 0) return launch_body<Group<16>, Body<16>>(work, bytes, target);
      return launch_body<Group<1>, Body<1>>(work, bytes, target);
    });
  }
  static int load(int device) {
    return on_device(device, [] {
      const cudaError_t e = CudaExecutor::load<Group<16>, Body<16>>();
      return e != cudaSuccess ? e : CudaExecutor::load<Group<1>, Body<1>>();
    });
  }
  static inline const bool once = [] {
    ExchangeKernels<Algo, Proto>::launch = &launch;
    ExchangeKernels<Algo, Proto>::load = &load;
    return true;
  }();
};

/// Plain stores: a block for each ring, as long as there are multiprocessors.
template <class Algo, class Proto>
struct PeerExchangeShape {
  using Group = BlockLanes<512>;
  using Body = PeerExchangeBody<Algo, DirectExchange>;

  static cudaError_t launch(PeerExchangeWork& work, const DeviceTarget& target) {
    Index rings = 0;
    for (int p = 0; p < work.peers.ranks; ++p) {
      for (const Message& m : {work.out[p], work.in[p]}) {
        rings += Rings::used(m.bytes, work.most_rings);
      }
    }
    const Index most =
        target.most_blocks < work.state.count ? target.most_blocks : work.state.count;
    work.channels = work.crews = int(rings < 1 ? 1 : rings < most ? rings : most);
    Body::template prepare<Group>(work);
    return CudaExecutor::launch<Group, Body>(work, {work.channels, work.crews, target.early},
                                             target.stream);
  }
  /// Of one launch: 1 GiB to one peer took 4346 us in one, on 2 H200, and takes 2970 in four. Why
  /// has not been found.
  static Index most_bytes(const PeerView&) { return Index{1} << 28; }
  static cudaError_t load() { return CudaExecutor::load<Group, Body>(); }
};

/// Packets: a warp for each tile, on as many multiprocessors as there are.
template <class Algo, class Proto>
requires(Proto::carries_flags) struct PeerExchangeShape<Algo, Proto> {
  template <int Align>
  using Exchange = PacketExchange<WarpLanes, Proto, Align>;
  template <int Align>
  using Body = PeerExchangeBody<Algo, Exchange<Align>::template Over>;

  static cudaError_t launch(PeerExchangeWork& work, const DeviceTarget& target) {
    Word bits = 16;
    for (int p = 0; p < work.peers.ranks; ++p) {
      for (const Message& m : {work.out[p], work.in[p]}) {
        if (m.bytes > 0) bits |= reinterpret_cast<cuda::std::uintptr_t>(m.data) | Word(m.bytes);
      }
    }
    return bits % 16 == 0 ? launch_aligned<16>(work, target) : launch_aligned<1>(work, target);
  }
  template <int Align>
  static cudaError_t launch_aligned(PeerExchangeWork& work, const DeviceTarget& target) {
    constexpr Index most_warps = Body<Align>::max_lanes / WarpLanes::width;
    const Index out = Exchange<Align>::tiles(work.out, work.peers.ranks);
    const Index in = Exchange<Align>::tiles(work.in, work.peers.ranks);
    const Index tiles = out > in ? out : in;
    Index blocks = target.most_blocks < work.state.count ? target.most_blocks : work.state.count;
    if (tiles < blocks) blocks = tiles;
    Index warps = div_up(tiles, blocks);
    warps = warps < most_warps ? warps : most_warps;
    work.crews = int(blocks);
    work.channels = int(blocks * warps);
    Body<Align>::template prepare<WarpLanes>(work);
    return CudaExecutor::launch<WarpLanes, Body<Align>>(
        work, {work.channels, work.crews, target.early}, target.stream);
  }
  static Index most_bytes(const PeerView& peers) { return Exchange<1>::most_bytes(peers); }
  static cudaError_t load() {
    const cudaError_t e = CudaExecutor::load<WarpLanes, Body<16>>();
    return e != cudaSuccess ? e : CudaExecutor::load<WarpLanes, Body<1>>();
  }
};

template <class Algo, class Proto>
struct Enrolled<PeerExchangeKernels<Algo, Proto>> {
  using Kernels = PeerExchangeKernels<Algo, Proto>;
  using Shape = PeerExchangeShape<Algo, Proto>;
  static int launch(const PeerExchangeWork& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      PeerExchangeWork work = how;
      return Shape::launch(work, target);
    });
  }
  static int load(int device) { return on_device(device, &Shape::load); }
  static inline const bool once = [] {
    Kernels::launch = &launch;
    Kernels::load = &load;
    Kernels::most_bytes = &Shape::most_bytes;
    return true;
  }();
};

/// Blocks, whose warps move the tiles, on as many multiprocessors as the fullest messages that may
/// come would keep busy.
template <class Algo, class Proto>
struct Enrolled<CountedKernels<Algo, Proto>> {
  using Kernels = CountedKernels<Algo, Proto>;
  using Group = BlockLanes<512>;
  template <int Align>
  using Body = CountedBody<Algo, Proto, Align>;
  using Exchange = CountedExchange<Group, Proto, 1>;

  static int launch(const CountedWork& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      CountedWork work = how;
      Exchange::deal(work);
      const Index rows = work.stride() < work.most ? work.stride() : work.most;
      const Index tiles = work.peers.ranks * Exchange::tiles(work, rows);
      Index blocks = target.most_blocks;
      if (work.peers.ranks > 1 && work.state.count < blocks) blocks = work.state.count;
      if (tiles < blocks) blocks = tiles < 1 ? 1 : tiles;
      work.channels = work.crews = int(blocks);
      const CudaShape shape{work.channels, work.crews, target.early};
      const Word bits = reinterpret_cast<cuda::std::uintptr_t>(work.send) |
                        reinterpret_cast<cuda::std::uintptr_t>(work.recv) | Word(work.row_bytes);
      if (bits % 16 == 0) return CudaExecutor::launch<Group, Body<16>>(work, shape, target.stream);
      return CudaExecutor::launch<Group, Body<1>>(work, shape, target.stream);
    });
  }
  static int load(int device) {
    return on_device(device, [] {
      const cudaError_t e = CudaExecutor::load<Group, Body<16>>();
      return e != cudaSuccess ? e : CudaExecutor::load<Group, Body<1>>();
    });
  }
  static int most_rows(const CountedWork& how) {
    CountedWork work = how;
    Exchange::deal(work);
    return Exchange::most_rows(work);
  }
  static inline const bool once = [] {
    Kernels::launch = &launch;
    Kernels::load = &load;
    Kernels::most_rows = &most_rows;
    return true;
  }();
};

template <class Algo>
struct Enrolled<CopyKernels<Algo>> {
  using Kernels = CopyKernels<Algo>;
  using Movers = BlockLanes<512>;
  /// Enough to keep ahead of NVLink; measured on H200.
  static constexpr int most_blocks = 64;

  static int sync(const CopySync& work, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      return CudaExecutor::launch<WarpLanes, CopySyncBody>(work, {1, 1, false}, target.stream);
    });
  }
  static int runs(const CopyRuns& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      CopyRuns work = how;
      Index bytes = 0;
      for (int r = 0; r < work.count; ++r) bytes += work.run[r].bytes;
      work.channels = blocks_for(bytes, target);
      return CudaExecutor::launch<Movers, CopyRunsBody>(work, {work.channels, work.channels, false},
                                                        target.stream);
    });
  }
  static int blocks_for(Index bytes, const DeviceTarget& target) {
    const Index worth = div_up<Index>(bytes, Index{64} << 10);
    return int(std::clamp<Index>(worth, 1, std::min(most_blocks, target.most_blocks)));
  }
  static int load(int device) {
    return on_device(device, [] {
      const cudaError_t e = CudaExecutor::load<WarpLanes, CopySyncBody>();
      return e != cudaSuccess ? e : CudaExecutor::load<Movers, CopyRunsBody>();
    });
  }
  static inline const bool once = [] {
    Kernels::sync = &sync;
    Kernels::runs = &runs;
    Kernels::load = &load;
    return true;
  }();
};

template <class Op, class Algo, class Proto, class R>
struct Enrolled<CopyReduceKernels<Op, Algo, Proto, R>> {
  using Lanes = BlockLanes<512>;

  static int launch(const CopyReduction<R>& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      CopyReduction<R> work = how;
      const Index bytes = work.count * Index{sizeof(typename R::Type)};
      work.channels = Enrolled<CopyKernels<Algo>>::blocks_for(bytes, target);
      Word bits = 0;
      for (int r = 0; r < work.ranks; ++r) {
        bits |= reinterpret_cast<cuda::std::uintptr_t>(work.piece[r]);
      }
      bits |= reinterpret_cast<cuda::std::uintptr_t>(work.output) |
              reinterpret_cast<cuda::std::uintptr_t>(work.also);
      const CudaShape shape{work.channels, work.channels, false};
      if (bits % 16 == 0) {
        return CudaExecutor::launch<Lanes, CopyReduceBody<R, true>>(work, shape, target.stream);
      }
      return CudaExecutor::launch<Lanes, CopyReduceBody<R, false>>(work, shape, target.stream);
    });
  }
  static int load(int device) {
    return on_device(device, [] {
      const cudaError_t e = CudaExecutor::load<Lanes, CopyReduceBody<R, true>>();
      return e != cudaSuccess ? e : CudaExecutor::load<Lanes, CopyReduceBody<R, false>>();
    });
  }
  static inline KernelLoader loader{&load, nullptr};
  static inline const bool once = [] {
    CopyReduceKernels<Op, Algo, Proto, R>::launch = &launch;
    loader.next = KernelsOf<Op, Algo, Proto>::first;
    KernelsOf<Op, Algo, Proto>::first = &loader;
    return true;
  }();
};

template <class Op, class Algo, class Proto, class R>
struct Enrolled<AsMember<WireCall<Op, Algo, Proto, R>>> {
  using Protocol = Proto;
  using Reduced = R;
  template <int Align>
  using Body = WireBody<Op, Algo, Proto, Align, R>;
  static constexpr int max_lanes = Body<16>::max_lanes;
  static void add_loader(KernelLoader& loader) {
    loader.next = KernelsOf<Op, Algo, Proto>::first;
    KernelsOf<Op, Algo, Proto>::first = &loader;
  }
};

template <class... Wired>
struct Enrolled<GroupKernels<Wired...>> {
  template <class W>
  using Member = Enrolled<AsMember<W>>;
  static constexpr int count = int(sizeof...(Wired));
  static constexpr int max_lanes = std::min({Member<Wired>::max_lanes...});
  template <int N, class W, int Align>
  using Part = KernelPart<N, LanesWithin<typename Member<W>::Protocol, max_lanes>,
                          typename Member<W>::template Body<Align>>;

  static int launch(const DeviceTarget& target, const WireWork<typename Wired::Reduced>&... works) {
    return on_device(target.device, [&] {
      const bool aligned = ((alignment(works) == 16) && ...);
      using Numbers = cuda::std::make_integer_sequence<int, count>;
      return aligned ? launch_as<16>(Numbers{}, target, works...)
                     : launch_as<1>(Numbers{}, target, works...);
    });
  }
  template <int Align, int... N>
  static cudaError_t launch_as(cuda::std::integer_sequence<int, N...>, const DeviceTarget& target,
                               const WireWork<typename Wired::Reduced>&... works) {
    if (target.most_blocks < count) return cudaErrorInvalidConfiguration;
    for (const cudaError_t e :
         {check_slices<typename Part<N, Wired, Align>::Lanes,
                       typename Member<Wired>::template Body<Align>>(works)...}) {
      if (e != cudaSuccess) return e;
    }
    // Each has a block; the others go by size, which all ranks see alike.
    Index all_bytes = 0;
    ((all_bytes += message_bytes(works)), ...);
    int begin = 0, lanes = 0;
    const auto part = [&]<class P>(std::type_identity<P>, auto work) {
      using Group = typename P::Lanes;
      const Index bytes = message_bytes(work);
      DeviceTarget share = target;
      share.most_blocks = 1 + int(double(target.most_blocks - count) * double(bytes) /
                                  double(all_bytes < 1 ? 1 : all_bytes));
      const CudaShape shape = device_shape<Group, max_lanes>(bytes, work.channels, share);
      work.channels = shape.channels;
      const P made{work, begin, shape.blocks};
      begin += shape.blocks;
      const int wants = div_up(shape.channels, shape.blocks) * Group::width;
      lanes = wants > lanes ? wants : lanes;
      return made;
    };
    using Parts = KernelParts<Part<N, Wired, Align>...>;
    static_assert(sizeof(Parts) <= 4000, "ccl: a group of fewer calls fits into a launch");
    const Parts parts{part(std::type_identity<Part<N, Wired, Align>>{}, works)...};
    return CudaExecutor::launch_parts<max_lanes>(parts, begin, lanes, target.early, target.stream);
  }
  template <int Align, int... N>
  static cudaError_t load_as(cuda::std::integer_sequence<int, N...>) {
    return CudaExecutor::load_parts<max_lanes, Part<N, Wired, Align>...>();
  }
  static int load(int device) {
    return on_device(device, [] {
      using Numbers = cuda::std::make_integer_sequence<int, count>;
      const cudaError_t e = load_as<16>(Numbers{});
      return e != cudaSuccess ? e : load_as<1>(Numbers{});
    });
  }
  static inline KernelLoader loaders[count];
  static inline const bool once = [] {
    GroupKernels<Wired...>::launch = &launch;
    int n = 0;
    for (KernelLoader& loader : loaders) loader.load = &load;
    (Member<Wired>::add_loader(loaders[n++]), ...);
    return true;
  }();
};

template <class R>
struct Enrolled<AloneKernels<R>> {
  static int launch(const R& reduction, const void* input, void* output, Index count,
                    const DeviceTarget& target) {
    return on_device(target.device, [&] {
      return CudaExecutor::alone(reduction, input, output, count, target.stream);
    });
  }
  static inline const bool once = [] {
    AloneKernels<R>::launch = &launch;
    return true;
  }();
};

/// See `enroll`: taking the address instantiates the variable, whose initializer runs before main.
template <class Kernels>
void enroll_device_code(std::type_identity<Kernels>) {
  (void)&Enrolled<Kernels>::once;
}

}  // namespace ccl::detail
