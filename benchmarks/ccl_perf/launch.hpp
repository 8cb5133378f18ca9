#pragma once

#include <functional>

#include "options.hpp"

namespace ccl::perf {

/// In a rank's own process, before it talks to others: which of `Options::hosts` it is on.
void take_host(const Options& options, int rank, int ranks);

/// Runs `body` on every rank that this process is to be, or to start. The exit status: the largest
/// of all ranks'. `body` gives its own exit status.
int launch(const Options& options, const std::function<Result<int>(const Communicator&)>& body);

}  // namespace ccl::perf
