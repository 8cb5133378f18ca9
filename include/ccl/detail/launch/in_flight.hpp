#pragma once

#include <ccl/comm/communicator.hpp>

#include <memory>

namespace ccl::detail {

/// Held by a call that waits on a `HostStream`, or runs there: `Communicator::finalize` returns
/// when none is held. Keeps the communicator.
std::shared_ptr<void> in_flight(const Communicator& comm);

}  // namespace ccl::detail
