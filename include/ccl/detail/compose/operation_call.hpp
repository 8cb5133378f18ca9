#pragma once

#include <ccl/types/word.hpp>

namespace ccl::detail {

/// Tags of operations, as in <ccl/types/operations.hpp>.
template <class Op>
concept StatesOperation = requires {
  Op::reduces;
  Op::rooted;
  Op::cuts;
};

/// Call of an operation: its signatures and the checks of its arguments. A composition `Self`
/// derives from it and runs the call. Each <ccl/collective/OPERATION.hpp> defines one.
template <class Op, class Self>
struct Call {
  static_assert(StatesOperation<Op>,
                "ccl: the first argument of Collective must be an operation (AllReduce, AllGather, "
                "Broadcast, ...); algorithm, protocol and transport follow in this order");
  static_assert(!StatesOperation<Op> || !sizeof(Self*),
                "ccl: the call of this operation is in <ccl/collective/OPERATION.hpp>; include "
                "that or <ccl/collective.hpp>");
};

/// Returns the address `bytes` after `base`, a multiple of the size of an element. Keeps null.
template <class P>
P* bytes_at(P* base, Index bytes) {
  return base == nullptr ? nullptr : base + bytes / Index{sizeof(P)};
}

}  // namespace ccl::detail
