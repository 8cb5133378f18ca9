#pragma once

#include <ccl/detail/compose/bound_call.hpp>
#include <ccl/detail/exchange/kernels.cuh>
#include <ccl/detail/exchange/over_peers.hpp>
#include <ccl/detail/group/registry.hpp>
#include <ccl/detail/peer/call.hpp>
#include <ccl/detail/peer/kernels.cuh>
#include <ccl/detail/peer/registry.hpp>
#include <ccl/detail/wire/call.hpp>
#include <ccl/detail/wire/context.hpp>
#include <ccl/detail/wire/registry.hpp>

#include <algorithm>
#include <array>
#include <tuple>

namespace ccl::detail {

template <class Call>
struct AsMember;  // member of a group

/// Counts of the kernels of a group, which are compiled for their number of ranks. A call of more
/// ranks takes no part in them.
template <class Counts>
struct GroupCounts {
  using Type = Counts;
};
template <>
struct GroupCounts<RankCounts<>> {
  using Type = RankCounts<2>;
};

template <class Op, class Algo, class Proto, class R>
struct RegisteredKernels<AsMember<WireCall<Op, Algo, Proto, R>>> {
  using Works = WireWork<R>;
  using Counts = RankCounts<>;  // any
  template <int MaxLanes>
  using Lanes = LanesOf<Proto>;
  template <int Align, int Ranks>
  using Body = WireBody<Op, Algo, Proto, Align, R>;
  static constexpr int max_lanes = Body<16, 0>::max_lanes;
  static bool takes_part(const Works& work) { return work.channels > 0; }
  template <class Lanes, class Body>
  static cudaError_t check(const Works& work) {
    return check_slices<Lanes, Body>(work);
  }
  template <class Lanes, class Body, int MaxLanes>
  static CudaShape spread(Works& work, const DeviceTarget& share) {
    const CudaShape shape =
        device_shape<Lanes, MaxLanes>(message_bytes(work), work.channels, share);
    work.channels = shape.channels;
    return shape;
  }
  static void add_loader(KernelLoader& loader) {
    using Of = ComposedKernels<Op, on_gpu_lanes<Algo>, Proto>;
    loader.next = Of::first;
    Of::first = &loader;
  }
};

template <class Op, class Algo, class Proto, class R>
struct RegisteredKernels<AsMember<PeerCall<Op, Algo, Proto, R>>> {
  using Works = PeerWork<R>;
  using Counts = GroupCounts<typename Algo::RankCounts::Kernels>::Type;
  template <int MaxLanes>
  using Lanes = WarpLanes;
  template <int Align, int Ranks>
  using Body = PeerBody<Op, Algo, Proto, Align, R, Ranks>;
  static constexpr int max_lanes = Body<16, 2>::max_lanes;
  static bool takes_part(const Works& work) { return work.layout.count > 0; }
  template <class Lanes, class Body>
  static cudaError_t check(const Works&) {
    return cudaSuccess;
  }
  template <class Lanes, class Body, int MaxLanes>
  static CudaShape spread(Works& work, const DeviceTarget& share) {
    return RegisteredKernels<PeerKernels<Op, Algo, Proto, R>>::template spread<Body>(work, MaxLanes,
                                                                                     share);
  }
  static void add_loader(KernelLoader& loader) {
    loader.next = ComposedKernels<Op, Algo, Proto>::first;
    ComposedKernels<Op, Algo, Proto>::first = &loader;
  }
};

template <class Op, class Algo, class Proto>
struct RegisteredKernels<AsMember<PeerExchangeCall<Op, Algo, Proto>>> {
  using Shape = PeerExchangeShape<Algo, Proto>;
  using Works = PeerExchangeWork;
  using Counts = RankCounts<>;  // any
  template <int MaxLanes>
  using Lanes = cuda::std::conditional_t<
      Proto::carries_flags, WarpLanes,
      cuda::std::conditional_t<(MaxLanes >= 512), BlockLanes<512>, BlockLanes<128>>>;
  template <int Align, int Ranks>
  using Body = typename Shape::template Body<Align>;
  static constexpr int max_lanes = Body<16, 0>::max_lanes;
  static bool takes_part(const Works& work) { return work.peers.ranks > 0; }
  template <class Lanes, class Body>
  static cudaError_t check(const Works&) {
    return cudaSuccess;
  }
  template <class Lanes, class Body, int MaxLanes>
  static CudaShape spread(Works& work, const DeviceTarget& share) {
    return Shape::template spread<Lanes, Body, MaxLanes>(work, share);
  }
  static void add_loader(KernelLoader& loader) {
    loader.next = ComposedKernels<Op, Algo, Proto>::first;
    ComposedKernels<Op, Algo, Proto>::first = &loader;
  }
};

/// Rank counts for which all calls of a group have kernels: those of the first call over a peer
/// view. All calls belong to one communicator, so the others need no counts of their own. The list
/// is `RankCounts<0>`, which stands for any count, if no call is over a peer view.
template <class... Counts>
struct CountsOf {
  using Type = RankCounts<0>;
};
template <class... Others>
struct CountsOf<RankCounts<>, Others...> : CountsOf<Others...> {};
template <int... Ranks, class... Others>
  requires(sizeof...(Ranks) > 0)
struct CountsOf<RankCounts<Ranks...>, Others...> {
  using Type = RankCounts<Ranks...>;
};

/// Includes the blocks of another call in `work` if both belong to one composition over a peer
/// view. Such calls count their launch together.
template <class R, class Q>
void beside(PeerWork<R>& work, const PeerWork<Q>& other, int places_behind) {
  const bool one_view = other.epoch.copies == work.epoch.copies;
  if (places_behind == 0 || !one_view || other.layout.count < 1) return;
  work.other_blocks += other.blocks;
  if (places_behind < 0) work.first_block += other.blocks;
}
template <class A, class B>
void beside(A&, const B&, int) {}
/// Returns the blocks that a launch of `calls` calls keeps for its exchanges, whether they take
/// part or not. Each rank decides alone which exchanges take part, but the others must divide the
/// same blocks on all ranks.
///
/// It keeps an eighth of the blocks, and at least one per exchange if the other calls leave so
/// many. The eighth is a choice, not a measured value.
inline int kept_for_exchanges(int max_blocks, int calls, int exchanges) {
  if (exchanges == 0) return 0;
  const int others = calls - exchanges;
  return std::max(0, std::min(std::max(exchanges, max_blocks / 8), max_blocks - others));
}
/// Returns the part of a launch for one of `calls` calls, which move `all_bytes` bytes in all. It
/// has one block, and other blocks in proportion to its bytes. All ranks compute the same part.
inline DeviceTarget share_of(DeviceTarget target, int calls, Index bytes, Index all_bytes) {
  const double part = double(bytes) / double(all_bytes < 1 ? 1 : all_bytes);
  target.max_blocks = 1 + int(double(target.max_blocks - calls) * part);
  return target;
}
template <class R>
int ranks_of(const WireWork<R>& work) {
  return work.ranks;
}
template <class R>
int ranks_of(const PeerWork<R>& work) {
  return work.peers.ranks;
}
inline int ranks_of(const PeerExchangeWork& work) {
  return work.peers.ranks;
}

template <class... Calls>
struct RegisteredKernels<GroupKernels<Calls...>> {
  template <class C>
  using Member = RegisteredKernels<AsMember<C>>;
  using Counts = typename CountsOf<typename Member<Calls>::Counts...>::Type;
  static constexpr int count = int(sizeof...(Calls));
  static constexpr int max_lanes = std::min({Member<Calls>::max_lanes...});
  template <int N, class C, int Align, int Ranks>
  using Part = KernelPart<N, typename Member<C>::template Lanes<max_lanes>,
                          typename Member<C>::template Body<Align, Ranks>>;
  using Numbers = cuda::std::make_integer_sequence<int, count>;

  static int launch(const DeviceTarget& target, const typename Calls::Work&... works) {
    return on_device(target.device, [&] { return launch_for(Counts{}, target, works...); });
  }
  template <int... Ranks>
  static cudaError_t launch_for(RankCounts<Ranks...>, const DeviceTarget& target,
                                const typename Calls::Work&... works) {
    const bool aligned = ((!Member<Calls>::takes_part(works) || alignment(works) == 16) && ...);
    int ranks = 0;
    ((ranks = std::max(ranks, ranks_of(works))), ...);  // 0 if the work has no part
    const int kernel =
        ranks > max_unrolled_ranks ? std::max({Ranks...}) : Counts::kernel_for(ranks);
    cudaError_t result = cudaErrorInvalidValue;
    const auto as = [&]<int R>(std::integral_constant<int, R>) {
      result = aligned ? launch_as<16, R>(Numbers{}, target, works...)
                       : launch_as<1, R>(Numbers{}, target, works...);
      return true;
    };
    (void)(((Ranks == 0 || Ranks == kernel) && as(std::integral_constant<int, Ranks>{})) || ...);
    return result;
  }
  template <int Align, int Ranks, int... N>
  static cudaError_t check_members(cuda::std::integer_sequence<int, N...>,
                                   const typename Calls::Work&... works) {
    for (const cudaError_t e :
         {Member<Calls>::template check<typename Part<N, Calls, Align, Ranks>::Lanes,
                                        typename Member<Calls>::template Body<Align, Ranks>>(
             works)...}) {
      if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
  }
  /// Returns the sum of the message bytes of the collectives that take part.
  static Index bytes_of_members(const typename Calls::Work&... works) {
    Index all_bytes = 0;
    const auto add = [&]<class M>(std::type_identity<M>, const auto& work) {
      if constexpr (requires { message_bytes(work); }) {
        if (M::takes_part(work)) all_bytes += message_bytes(work);
      }
    };
    (add(std::type_identity<Member<Calls>>{}, works), ...);
    return all_bytes;
  }
  template <int Align, int Ranks, int... N>
  static cudaError_t launch_as(cuda::std::integer_sequence<int, N...>, const DeviceTarget& target,
                               const typename Calls::Work&... works) {
    constexpr int exchanges = (0 + ... + int(is_exchange<Calls>));
    DeviceTarget rest = target;
    rest.max_blocks -= kept_for_exchanges(target.max_blocks, count, exchanges);
    const int members = (0 + ... + int(!is_exchange<Calls> && Member<Calls>::takes_part(works)));
    if (rest.max_blocks < members) return cudaErrorInvalidConfiguration;
    const cudaError_t checked = check_members<Align, Ranks>(Numbers{}, works...);
    if (checked != cudaSuccess) return checked;
    const Index all_bytes = bytes_of_members(works...);
    std::tuple<typename Calls::Work...> spread{works...};
    std::array<CudaShape, count> shapes;
    int used = 0;
    const auto shape = [&]<class M, class P>(std::type_identity<M>, std::type_identity<P>,
                                             auto& work, const DeviceTarget& share, auto& made) {
      if (!M::takes_part(work)) return;
      made = M::template spread<typename P::Lanes, typename P::Runs, max_lanes>(work, share);
      used += made.blocks;
    };
    const auto shape_collective = [&](auto member, auto part, auto& work, auto& made) {
      if constexpr (requires { message_bytes(work); }) {
        shape(member, part, work, share_of(rest, members, message_bytes(work), all_bytes), made);
      }
    };
    shapes.fill({0, 0});
    (shape_collective(std::type_identity<Member<Calls>>{},
                      std::type_identity<Part<N, Calls, Align, Ranks>>{}, std::get<N>(spread),
                      shapes[N]),
     ...);
    if constexpr (exchanges > 0) {
      rest.max_blocks = (target.max_blocks - used) / exchanges;
      const bool any = ((is_exchange<Calls> && Member<Calls>::takes_part(works)) || ...);
      if (any && rest.max_blocks < 1) return cudaErrorInvalidConfiguration;
      const auto shape_exchange = [&](auto member, auto part, auto& work, auto& made) {
        if constexpr (!requires { message_bytes(work); }) shape(member, part, work, rest, made);
      };
      (shape_exchange(std::type_identity<Member<Calls>>{},
                      std::type_identity<Part<N, Calls, Align, Ranks>>{}, std::get<N>(spread),
                      shapes[N]),
       ...);
    }
    (divide_blocks<N>(spread, Numbers{}), ...);
    int begin = 0, lanes = 0;
    const auto part = [&]<class P>(std::type_identity<P>, const auto& work, const CudaShape& of) {
      const P made{work, begin, of.blocks};
      begin += of.blocks;
      const int wants = of.blocks < 1 ? 0 : div_up(of.channels, of.blocks) * P::Lanes::width;
      lanes = wants > lanes ? wants : lanes;
      return made;
    };
    using Parts = KernelParts<Part<N, Calls, Align, Ranks>...>;
    static_assert(sizeof(Parts) <= 4000, "ccl: a group of fewer calls fits into a launch");
    const Parts parts{part(std::type_identity<Part<N, Calls, Align, Ranks>>{}, std::get<N>(spread),
                           shapes[N])...};
    return CudaExecutor::launch_parts<max_lanes>(parts, begin, lanes, target.share, target.stream);
  }
  template <int N, class Works, int... M>
  static void divide_blocks(Works& works, cuda::std::integer_sequence<int, M...>) {
    (beside(std::get<N>(works), std::get<M>(works), M - N), ...);
  }
  template <int Align, int... Ranks, int... N>
  static cudaError_t load_as(RankCounts<Ranks...>, cuda::std::integer_sequence<int, N...>) {
    cudaError_t result = cudaSuccess;
    const auto load = [&]<int R>(std::integral_constant<int, R>) {
      result = CudaExecutor::load_parts<max_lanes, Part<N, Calls, Align, R>...>();
      return result == cudaSuccess;
    };
    (void)(load(std::integral_constant<int, Ranks>{}) && ...);
    return result;
  }
  static int load(int device) {
    return on_device(device, [] {
      const cudaError_t e = load_as<16>(Counts{}, Numbers{});
      return e != cudaSuccess ? e : load_as<1>(Counts{}, Numbers{});
    });
  }
  static inline KernelLoader loaders[count];
  static inline const bool once = [] {
    GroupKernels<Calls...>::launch = &launch;
    int n = 0;
    for (KernelLoader& loader : loaders) loader.load = &load;
    (Member<Calls>::add_loader(loaders[n++]), ...);
    return true;
  }();
};

}  // namespace ccl::detail
