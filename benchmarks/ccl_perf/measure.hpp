#pragma once

#include "options.hpp"

namespace ccl::perf {

/// Measures the requested cases on one rank of `comm`; rank 0 prints. Returns the program's exit
/// status, equal on all ranks: 1 if any element was wrong.
Result<int> measure(const Communicator& comm, const Options& options);

}  // namespace ccl::perf
