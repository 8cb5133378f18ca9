#pragma once

#include "options.hpp"

namespace ccl::perf {

/// Measures what the options ask for, on one rank of `comm`; rank 0 prints. The program's exit
/// status, the same on all ranks: 1 if any element was wrong.
Result<int> measure(const Communicator& comm, const Options& options);

}  // namespace ccl::perf
