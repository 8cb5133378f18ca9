#pragma once

#include <ccl/choose/candidates.hpp>
#include <ccl/detail/choose/facts.hpp>

#include <string_view>
#include <type_traits>

#include "wire_runner.hpp"

namespace ccl::perf {

/// Returns what the cost model takes of a composition that a list has, or nothing.
template <class Op, class Algo, class Proto, class... Cs>
std::optional<EntryFacts::Listed> facts_in(Candidates<Cs...>) {
  std::optional<EntryFacts::Listed> found;
  int place = 0;
  const auto look = [&]<class C>(std::type_identity<C>) {
    // By name: the list may have kernels for fewer ranks.
    if constexpr (std::string_view{C::algo} == Algo::name &&
                  std::string_view{C::proto} == Proto::name) {
      found = {detail::facts_of<Op, C, AnyTransport>(), place};
    }
    ++place;
  };
  (look(std::type_identity<Cs>{}), ...);
  return found;
}
/// Returns what the cost model takes of a composition, as `Collective<Op>` and
/// `Collective<Op, Deterministic>` list it.
template <class Op, class Algo, class Proto>
EntryFacts entry_facts() {
  const auto listed = facts_in<Op, Algo, Proto>(typename detail::DefaultCandidates<Op>::List{});
  return {listed ? listed->facts : detail::facts_of<Op, Candidate<Algo, Proto>, AnyTransport>(),
          listed.has_value(),
          facts_in<Op, Algo, Proto>(typename detail::DeterministicCandidates<Op>::List{})};
}

}  // namespace ccl::perf
