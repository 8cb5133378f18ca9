#pragma once

#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/traits.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/exchange/over_peers.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/detail/peer/call.hpp>
#include <ccl/detail/wire/call.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

namespace ccl::detail {

template <class Op, class Algo, class Proto, class Acc, class... Args>
struct CallOf {
  using Type = void;
};
/// Call over wires or a peer view. Exchanges of messages over wires, copies and calls over
/// multicast memory are separate launches.
template <class Op, class Algo>
inline constexpr bool shares_kernels =
    OverPeers<Algo> ? !MovesByCopies<Algo> && !ReadsPeers<Op, Algo> && !Multicasts<Algo>
                    : !std::same_as<Algo, Pairwise>;
template <class Op, class Algo>
inline constexpr bool is_collective = shares_kernels<Op, Algo> && !ExchangesOverPeers<Op, Algo>;
template <class Op, class Algo, class Proto, class R>
using GroupCall =
    std::conditional_t<OverPeers<Algo>, PeerCall<Op, Algo, Proto, R>, WireCall<Op, Algo, Proto, R>>;
template <class Op, class Algo, class Proto, class Acc, class T, class... Args>
  requires(is_collective<Op, Algo> && Op::reduces)
struct CallOf<Op, Algo, Proto, Acc, T*, Args...> {
  using E = std::remove_const_t<T>;
  using F = std::tuple_element_t<2, std::tuple<Args..., Sum>>;  // types after `recv` and `count`
  using A = std::conditional_t<std::is_void_v<Acc>, accumulate_t<E>, Acc>;
  using Type = GroupCall<Op, Algo, Proto, Reduction<F, E, A>>;
};
template <class Op, class Algo, class Proto, class Acc, class T, class... Args>
  requires(is_collective<Op, Algo> && !Op::reduces)
struct CallOf<Op, Algo, Proto, Acc, T*, Args...> {
  using Type = GroupCall<Op, Algo, Proto, Bytes>;
};
template <class Op, class Algo, class Proto, class Acc, class... Args>
  requires(shares_kernels<Op, Algo> && ExchangesOverPeers<Op, Algo>)
struct CallOf<Op, Algo, Proto, Acc, Args...> {
  using Type = PeerExchangeCall<Op, Algo, Proto>;
};
/// Type that records a call with these arguments. `WireCall`, `PeerCall` and `PeerExchangeCall` may
/// share a kernel with other calls. `void` is a separate launch on a GPU.
template <class Op, class Algo, class Proto, class Acc, class... Args>
using bound_call = typename CallOf<Op, Algo, Proto, Acc, Args...>::Type;

template <class Call>
inline constexpr bool is_exchange = false;
template <class Op, class Algo, class Proto>
inline constexpr bool is_exchange<PeerExchangeCall<Op, Algo, Proto>> = true;

/// Composition and the arguments of one of its calls.
template <class C, class Wired, class Acc, class... Args>
class BoundCall {
 public:
  using Call = Wired;
  BoundCall(C collective, std::tuple<Args...> args)
      : collective_{std::move(collective)}, args_{std::move(args)} {}

  Result<void> operator()(Stream stream) const {
    return std::apply(
        [&](const auto&... args) {
          if constexpr (std::is_void_v<Acc>) {
            return collective_(args..., stream);
          } else {
            return collective_.template operator()<Acc>(args..., stream);
          }
        },
        args_);
  }

  int ranks() const { return collective_.ranks(); }
  bool alone() const { return ranks() == 1; }

 private:
  C collective_;
  std::tuple<Args...> args_;
};

}  // namespace ccl::detail
