#pragma once

#include "gpu.hpp"
#include "options.hpp"

namespace ccl::perf {

/// What GPUs there are. Asked once, in another process: this one stays free to fork ranks.
const gpu::Facts& gpus();

/// Measures what the options ask for on GPUs, beside NCCL if they ask for that. Starts the ranks of
/// every library and mode, and has one of them at work at a time. The program's exit status.
int conduct(const Options& options);

}  // namespace ccl::perf
