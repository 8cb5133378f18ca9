#pragma once

#include <ccl/algo/traits.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/wire/checks.hpp>
#include <ccl/detail/wire/compiled_lanes.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Check of `Checked`: a reduction looks for NaN in each rank's input before it sends or combines
/// that. A NaN fails the communicator with `Errc::not_a_number`, which names the rank and the
/// element: the first of the input or, in place, the first of the part that was to be sent. In a
/// communicator of one rank nothing is looked at.
struct NanCheck {};
/// Check of `Checked`: count, element type, reduction and root of neighbors are compared before any
/// data moves. A difference fails the communicator with `Errc::mismatch`, which names both ranks
/// and their values. It costs one packet for each wire and channel, ahead of the data.
///
/// Operations with a root by algorithms whose wires depend on the root, such as Tree, are not
/// compared. Types of the user, and functors of the user, are not told apart.
struct CallCheck {};

namespace detail {
/// Name of a checked algorithm. It states the checks, because ranks compare names.
template <class Algo, bool nans, bool calls>
inline constexpr auto checked_name = [] {
  constexpr std::string_view before = nans && calls ? "Checked<"
                                      : nans        ? "NanChecked<"
                                                    : "CallChecked<";
  constexpr std::string_view name = Algo::name;
  std::array<char, before.size() + name.size() + 2> all{};
  before.copy(all.data(), before.size());
  name.copy(all.data() + before.size(), name.size());
  all[before.size() + name.size()] = '>';
  return all;
}();

/// Runs the steps of `Algo` with checks.
template <class Algo, bool nans, bool calls, class Op, class Context>
CCL_HD void run_checked(Op op, Context& context) {
  using Work = cuda::std::remove_cvref_t<decltype(context.work())>;
  using R = cuda::std::remove_cvref_t<decltype(Work::reduction)>;
  if constexpr (calls && !wires_by_root<Op, Algo>) {  // a call may connect those
    if (!same_calls(context)) return;
  }
  if constexpr (nans && reduces<R> && can_be_nan<typename R::Type>()) {
    NanCheckedContext<Context> checked{context};
    Algo::run(op, checked);
  } else {
    Algo::run(op, context);
  }
}
template <class Check, class... Checks>
inline constexpr bool lists_check = sizeof...(Checks) == 0 || (std::same_as<Check, Checks> || ...);
}  // namespace detail

/// Algorithm over wires with checks, which are `NanCheck`, `CallCheck` or, if none is listed, both.
/// It takes the place of `Algo` in a composition, on CPU ranks and on GPUs:
///
///     using Sums = ccl::Collective<ccl::AllReduce, ccl::Checked<ccl::Ring>, ccl::LL>;
///
/// Compositions without it have no code for checks. All ranks must compose the same.
template <class Algo, class... Checks>
struct Checked : Algo {
  static_assert(
      !OverPeers<Algo> && !requires { Algo::serves_pairs; },
      "ccl: Checked takes algorithms over wires that run collectives, such as Ring and "
      "Tree");
  static_assert(((std::same_as<Checks, NanCheck> || std::same_as<Checks, CallCheck>)&&...),
                "ccl: the checks of Checked are NanCheck and CallCheck");
  static constexpr bool checks_nans = detail::lists_check<NanCheck, Checks...>;
  static constexpr bool checks_calls = detail::lists_check<CallCheck, Checks...>;
  static constexpr bool lands_ahead = false;  // a NaN ends a call whose places peers may write to
  /// "Checked<Ring>", "NanChecked<Ring>" or "CallChecked<Ring>".
  static constexpr const char* name = detail::checked_name<Algo, checks_nans, checks_calls>.data();
  using OnCpus = Checked<detail::on_cpu_lanes<Algo>, Checks...>;
  using OnGpus = Checked<detail::on_gpu_lanes<Algo>, Checks...>;

  template <class Op, class Context>
  CCL_HD static constexpr void run(Op op, Context& context) {
    if constexpr (detail::has_lanes<Context>) {
      detail::run_checked<Algo, checks_nans, checks_calls>(op, context);
    } else {
      Algo::run(op, context);
    }
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
