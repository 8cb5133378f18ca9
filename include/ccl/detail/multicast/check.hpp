#pragma once

#include <ccl/algo/traits.hpp>
#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/element/switch_op.hpp>

namespace ccl::detail {

/// States in one sentence why switches do not have a reduction.
template <class F, class T, class Acc>
constexpr bool check_switch_op() {
  using S = SwitchOp<F, T>;
  static_assert(S::known_functor,
                "ccl: switches have Sum, Avg, PreMulSum, Min and Max and no other functor; use "
                "TwoShot or Direct on one host, Ring or Tree on several");
  static_assert(
      !is_one_of<typename S::Functor, Sum> || S::adds,
      "ccl: switches add float, double, 16-bit floats and integers of 4 and 8 bytes, "
      "and no other elements; use TwoShot or Direct on one host, Ring or Tree on several");
  static_assert(!is_one_of<typename S::Functor, Min, Max> || S::compares,
                "ccl: switches compare 16-bit floats and integers of 4 and 8 bytes, and no other "
                "elements; use TwoShot or Direct on one host, Ring or Tree on several");
  static_assert(cuda::std::is_same_v<Acc, accumulate_t<T>>,
                "ccl: switches choose the type in which they add; leave the accumulate type out, "
                "or use TwoShot or Direct on one host, Ring or Tree on several");
  return true;
}

/// States in one sentence why a composition cannot run over multicast memory.
template <class Op, class Algo, class Proto, class R>
constexpr bool check_multicast() {
  static_assert(Multicasts<Algo>,
                "ccl: this algorithm reaches each peer by itself and needs no multicast memory; "
                "use Nvls");
  if constexpr (Multicasts<Algo>) {
    static_assert(Algo::template supports<Op>,
                  "ccl: this algorithm does not run this operation over multicast memory; see "
                  "`supports` in its header for those that it does");
  }
  static_assert(!Proto::carries_flags,
                "ccl: multicast stores land in pieces, so no packet can carry a flag; use Simple");
  if constexpr (reduces<R>) {
    return check_switch_op<typename R::Functor, typename R::Type, typename R::Accumulate>();
  }
  return true;
}

}  // namespace ccl::detail
