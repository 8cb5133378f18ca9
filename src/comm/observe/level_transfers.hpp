#pragma once

#include <ccl/detail/runtime/levels.hpp>

namespace ccl::detail {

struct CommState;

/// Lets the listener of the transfers of the whole communicator, if there is one, follow those of a
/// level, too. It gets the peers' ranks in the whole. Called before the level has connections.
void follow_transfers(const CommState& whole, const Levels::Part& part);

}  // namespace ccl::detail
