#pragma once

#include <ccl/algo/traits.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/wire/compiled_lanes.hpp>
#include <ccl/detail/wire/traced_steps.hpp>
#include <ccl/types/macros.hpp>

#include <array>
#include <cstddef>
#include <string_view>

CCL_ANY_SPACE_BEGIN

namespace ccl {
namespace detail {
template <class Algo>
inline constexpr auto traced_name = [] {
  constexpr std::string_view before = "Traced<", name = Algo::name;
  std::array<char, before.size() + name.size() + 2> all{};
  before.copy(all.data(), before.size());
  name.copy(all.data() + before.size(), name.size());
  all[before.size() + name.size()] = '>';
  return all;
}();

/// Runs the steps of `Algo` in a kernel, with notes.
template <class Algo, class Op, class Context>
CCL_HD void run_traced(Op op, const Context& context) {
  using Notes = LaunchNotes<typename decltype(context.group())::Memory>;
  Notes notes{context.group(), context.work().watch, context.channel()};
  TracedContext<Context, Notes> traced{context, notes};
  Algo::run(op, traced);
}
}  // namespace detail

/// Algorithm whose lanes note when their phases begin: the launch, the end of the launch before,
/// the first data, the last data, the end. `Communicator::flight_record` and files of
/// `Communicator::dump` have the times. It takes the place of `Algo` in a composition:
///
///     using Sums = ccl::Collective<ccl::AllReduce, ccl::Traced<ccl::Ring>, ccl::LL>;
///
/// `Algo` runs over wires (Ring, Tree) or over peers' memory (OneShot, TwoShot, Direct). Kernels of
/// compositions without `Traced` have no code for times. CPU ranks run the lanes of `Algo`, which
/// note times in any composition over wires with CCL_TRACE_PHASES=1. All ranks must compose the
/// same. `Traced` and `Checked` may hold each other.
template <class Algo>
struct Traced : Algo {
  static_assert(
      !detail::MovesByCopies<Algo> && !Multicasts<Algo> && !requires { Algo::serves_pairs; },
      "ccl: Traced takes algorithms whose lanes run collectives, such as Ring, Tree, "
      "OneShot, TwoShot and Direct");
  static constexpr bool notes_phases = true;
  static constexpr const char* name = detail::traced_name<Algo>.data();  ///< "Traced<Ring>"
  using OnCpus = detail::on_cpu_lanes<Algo>;
  using OnGpus = Traced<detail::on_gpu_lanes<Algo>>;

  template <class Op, class Context>
  CCL_HD static constexpr void run(Op op, Context& context) {
    if constexpr (detail::has_lanes<Context>) {
      detail::run_traced<Algo>(op, context);
    } else {
      Algo::run(op, context);  // over peers' memory, the primitives note
    }
  }
  /// Runs messages between any two ranks, over peers' memory.
  template <class Exchange>
    requires OverPeers<Algo>
  CCL_HD static constexpr void run(Exchange& exchange) {
    Algo::run(exchange);
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
