#pragma once

// `Collective` that chooses its composition, by ccl's own lists of candidates or by the program's.

#include <ccl/choose/candidates.hpp>
#include <ccl/collective.hpp>
#include <ccl/detail/choose/auto_collective.hpp>
#include <ccl/hierarchical.hpp>

namespace ccl::detail {

template <class Op, class Proto>
struct CandidatesOf<Op, Auto, Proto> {
  using List = typename OfProto<typename DefaultCandidates<Op>::List, Proto>::List;
};
template <class Op, class Proto>
struct CandidatesOf<Op, Deterministic, Proto> {
  using List = typename OfProto<typename DeterministicCandidates<Op>::List, Proto>::List;
};
template <class Op>
struct CandidatesOf<Op, Auto, Auto> : DefaultCandidates<Op> {};
template <class Op>
struct CandidatesOf<Op, Deterministic, Auto> : DeterministicCandidates<Op> {};

}  // namespace ccl::detail
