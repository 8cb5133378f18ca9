#pragma once

#include <ccl/choose/candidates.hpp>
#include <ccl/detail/choose/facts.hpp>

#include <string_view>
#include <type_traits>

#include "wire_runner.hpp"

namespace ccl::perf {

/// Returns what the cost model takes of a composition, as `Collective<Op>` lists it.
template <class Op, class Algo, class Proto, class... Cs>
EntryFacts facts_in(Candidates<Cs...>) {
  EntryFacts found{detail::facts_of<Op, Candidate<Algo, Proto>, AnyTransport>(), false};
  const auto look = [&]<class C>(std::type_identity<C>) {
    // By name: the list may have kernels for fewer ranks.
    if constexpr (std::string_view{C::algo} == Algo::name &&
                  std::string_view{C::proto} == Proto::name) {
      found = {detail::facts_of<Op, C, AnyTransport>(), true};
    }
  };
  (look(std::type_identity<Cs>{}), ...);
  return found;
}
template <class Op, class Algo, class Proto>
EntryFacts entry_facts() {
  return facts_in<Op, Algo, Proto>(typename detail::DefaultCandidates<Op>::List{});
}

}  // namespace ccl::perf
