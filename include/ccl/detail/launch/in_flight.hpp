#pragma once

#include <ccl/comm/communicator.hpp>

#include <memory>

namespace ccl::detail {

/// Returns a token that a call on a `HostStream` holds until it ends. `Communicator::finalize`
/// returns when no token is held. A token keeps the communicator.
std::shared_ptr<void> in_flight(const Communicator& comm);

}  // namespace ccl::detail
