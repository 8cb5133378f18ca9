#pragma once

#include "gpu.hpp"
#include "options.hpp"

namespace ccl::perf {

/// Returns the GPUs of this machine. They are queried once, in another process, so that this one
/// can still fork ranks.
const gpu::Facts& gpus();

/// Measures the requested cases on GPUs, and NCCL beside them if requested. Starts the ranks of
/// every library and mode, of which one works at a time. Returns the program's exit status.
int conduct(const Options& options);

}  // namespace ccl::perf
