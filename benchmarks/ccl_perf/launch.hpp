#pragma once

#include <functional>

#include "options.hpp"

namespace ccl::perf {

/// Assigns this rank to one of `Options::hosts`. The rank's own process calls it before it
/// communicates.
void take_host(const Options& options, int rank, int ranks);

/// Runs `body` on every rank that this process is or starts. Returns the largest exit status of all
/// ranks; `body` returns that of its rank.
int launch(const Options& options, const std::function<Result<int>(const Communicator&)>& body);

}  // namespace ccl::perf
