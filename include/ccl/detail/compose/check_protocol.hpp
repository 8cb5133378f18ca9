#pragma once

#include <ccl/algo/traits.hpp>
#include <ccl/detail/numeric/network_step.hpp>
#include <ccl/proto/lane_group.hpp>
#include <ccl/proto/protocol.hpp>
#include <ccl/transport/transport.hpp>

namespace ccl::detail {

/// States in one sentence why a protocol cannot be the third argument of `Collective`.
template <class Proto>
constexpr bool check_protocol() {
  static_assert(Protocol<Proto, AnyLanes>,
                "ccl: the third argument of Collective must be a protocol (Simple, LL, LL128, or "
                "a model of Protocol); the compiler's notes name the missing member");
  return true;
}

/// States in one sentence why a protocol cannot run over a transport.
template <class Proto, class T>
constexpr bool check_transport() {
  static_assert(Transport<T>,
                "ccl: the fourth argument of Collective must be a transport (a model "
                "of Transport); the compiler's notes name the missing member");
  static_assert(T::atomic_line_bytes >= Proto::line_bytes,
                "ccl: this protocol needs lines that land whole, and the transport's "
                "atomic_line_bytes is too small for it; use Simple or LL");
  return true;
}

/// True if networks that reduce know elements of `T`, or the algorithm needs no such network.
template <class Algo, class T>
inline constexpr bool network_knows = !ReducesInNetwork<Algo> || network_type<T>() >= 0;
/// True for transports that carry nothing but sums between hosts.
template <class T>
inline constexpr bool reduces_alone = requires { requires T::only_reduces; };

/// States in one sentence why a protocol cannot carry what an algorithm moves.
template <class Op, class Algo, class Proto>
constexpr bool check_flags() {
  static_assert(
      !OverPeers<Algo> || StoresPlainly<Algo> || MovesByCopies<Algo> || Proto::carries_flags,
      "ccl: this algorithm tells by flags that its data has landed; use LL or LL128");
  static_assert(!CarriesSome<Proto> || (OverPeers<Algo> && Op::reduces),
                "ccl: this protocol carries reductions over peers' memory and nothing else; use "
                "LL or LL128, or OneShot or TwoShot");
  static_assert(!ReducesInNetwork<Algo> || !Proto::carries_flags,
                "ccl: a network reduces plain elements, and this protocol has flags between them; "
                "use Simple");
  static_assert(!MovesByCopies<Algo> || !Proto::carries_flags,
                "ccl: copy engines move data as it is, without flags; use Simple");
  static_assert(!StoresPlainly<Algo> || !Proto::carries_flags,
                "ccl: this algorithm stores data where the user wants it, which leaves no room for "
                "flags; use Simple");
  return true;
}

}  // namespace ccl::detail
