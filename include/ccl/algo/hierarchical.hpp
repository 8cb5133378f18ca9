#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/types/operations.hpp>

#include <array>
#include <string_view>
#include <type_traits>

namespace ccl {

/// Level of `Hierarchical` with a protocol of its own.
template <class Algo, class Proto>
struct With {
  using Algorithm = Algo;
  using Protocol = Proto;
};

template <class Inner, class Outer>
struct Hierarchical;

namespace detail {
template <class Algo>
inline constexpr bool is_hierarchical = false;
template <class Inner, class Outer>
inline constexpr bool is_hierarchical<Hierarchical<Inner, Outer>> = true;

template <class A>
struct LevelOf {
  using Algorithm = A;
  template <class Proto>
  using ProtocolOr = Proto;
};
template <class A, class P>
struct LevelOf<With<A, P>> {
  using Algorithm = A;
  template <class Proto>
  using ProtocolOr = P;
};
/// True if the algorithm runs messages of any size between any two ranks.
template <class Algo>
inline constexpr bool runs_messages = [] {
  if constexpr (requires { Algo::serves_pairs; }) return Algo::serves_pairs;
  if constexpr (requires { Algo::template exchanges<AllToAllV>; }) {
    return Algo::template exchanges<AllToAllV>;
  }
  return false;
}();
template <class Algo, class... Ops>
inline constexpr bool runs_all = (Algo::template supports<Ops> && ...);

template <class Op, class Inner, class Outer>
constexpr bool levels_run() {
  if constexpr (std::is_same_v<Op, AllReduce>) {
    constexpr bool inside =
        runs_all<Inner, ReduceScatter, AllGather> || runs_all<Inner, Reduce, Broadcast>;
    return inside && runs_all<Outer, AllReduce>;
  } else if constexpr (std::is_same_v<Op, AllToAll>) {
    return runs_messages<Inner> && runs_messages<Outer>;
  } else if constexpr (requires { Inner::heads_own_shares; }) {
    return false;  // its shares are not those of the ranks
  } else if constexpr (is_one_of<Op, AllGather, ReduceScatter, Broadcast, Reduce>) {
    return runs_all<Inner, Op> && runs_all<Outer, Op>;
  }
  return false;
}

/// Name of the algorithm, such as "Hierarchical-Ring-Tree".
template <class Inner, class Outer>
struct HierarchicalName {
  static constexpr std::string_view parts[4] = {"Hierarchical-", Inner::name, "-", Outer::name};
  static constexpr std::size_t size = [] {
    std::size_t n = 1;
    for (const std::string_view part : parts) n += part.size();
    return n;
  }();
  static constexpr std::array<char, size> text = [] {
    std::array<char, size> all{};
    std::size_t at = 0;
    for (const std::string_view part : parts) {
      for (const char c : part) all[at++] = c;
    }
    return all;
  }();
};
}  // namespace detail

/// Runs one algorithm between the ranks of a host and another between hosts, one after the other.
/// If `Inner` runs ReduceScatter and AllGather, the n-th ranks of all hosts form a rail. Each rail
/// carries 1/L of a message between hosts, where L is the number of ranks of a host.
///
/// - AllReduce: ReduceScatter inside, AllReduce along the rails, AllGather inside. If `Inner` has
///   no rails (Tree, TwoShot): Reduce, AllReduce, Broadcast through one rank of each host.
/// - AllGather, ReduceScatter: the same operation at both levels.
/// - Broadcast, Reduce: along the root's rail.
/// - AllToAll (Pairwise, Direct): through the host's rank on the receiver's rail, which sends the
///   data of its host. A rank communicates with one rank of each other host, through the nearest
///   NIC.
/// `Inner` may address its peers' memory (OneShot) while `Outer` uses a network. A level is an
/// algorithm, or `With<Algo, Proto>` for another protocol than the composition's. Rails need
/// equally many ranks on every host. On CPUs a long AllReduce along rails goes in parts, one
/// between hosts while others are inside; otherwise levels run one after the other.
template <class Inner, class Outer>
struct Hierarchical {
  using InnerAlgo = typename detail::LevelOf<Inner>::Algorithm;
  using OuterAlgo = typename detail::LevelOf<Outer>::Algorithm;
  static_assert(!detail::is_hierarchical<InnerAlgo> && !detail::is_hierarchical<OuterAlgo>,
                "ccl: Hierarchical has two levels, inside a host and between hosts; a level is an "
                "algorithm, or With<Algo, Proto>");
  static_assert(
      !requires { OuterAlgo::multicasts; },
      "ccl: multicast memory ends at the host, so the level between hosts cannot have it; put "
      "Nvls inside, or use NvlsTree");
  template <class Proto>
  using InnerProto = typename detail::LevelOf<Inner>::template ProtocolOr<Proto>;
  template <class Proto>
  using OuterProto = typename detail::LevelOf<Outer>::template ProtocolOr<Proto>;

  static constexpr const char* name = detail::HierarchicalName<InnerAlgo, OuterAlgo>::text.data();
  static constexpr bool reorders = true;  ///< hosts need not hold neighboring ranks
  static constexpr bool rails = detail::runs_all<InnerAlgo, ReduceScatter, AllGather>;
  template <class Op>
  static constexpr bool supports = detail::levels_run<Op, InnerAlgo, OuterAlgo>();
  /// True if the inner algorithm supports the reduction. Partial results become a level's own data.
  template <class F>
    requires(
                requires { InnerAlgo::template supports_reduction<F>; } ||
                requires { OuterAlgo::template supports_reduction<F>; })
  static constexpr bool supports_reduction = [] {
    bool all = true;
    if constexpr (requires { InnerAlgo::template supports_reduction<F>; }) {
      all = all && InnerAlgo::template supports_reduction<F>;
    }
    if constexpr (requires { OuterAlgo::template supports_reduction<F>; }) {
      all = all && OuterAlgo::template supports_reduction<F>;
    }
    return all;
  }();
};

}  // namespace ccl
