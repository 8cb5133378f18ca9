#pragma once

#include <ccl/detail/base/status.hpp>

#include <chrono>
#include <thread>

namespace ccl::detail {

/// Blocks until the communicator has an error or `leaving()` is true, for at most 2 s. The other
/// end of a connection may have left because of a third rank, and the bootstrap's account of that
/// can arrive later than the end of the connection.
template <class Leaving>
void await_cause(const Status* status, Leaving leaving) {
  const auto due = std::chrono::steady_clock::now() + std::chrono::seconds{2};
  while (status != nullptr && status->ok() && !leaving() &&
         std::chrono::steady_clock::now() < due) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

}  // namespace ccl::detail
