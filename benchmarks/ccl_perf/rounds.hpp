#pragma once

#include <ccl/detail/choose/tuning.hpp>

#include <string>

#include "options.hpp"
#include "report.hpp"

namespace ccl::perf {

/// Outcome of the cases with one limit on blocks.
struct Measured {
  bool well = true;          // no case failed
  detail::TuningCase where;  // case of a tuning table that the times are for
  Index unfinished = 0;      // size of which only some compositions were measured when the run was
                             // stopped; 0: none
};

/// Measures the requested cases on GPUs in rounds: in each, ccl and the modes of NCCL are timed in
/// turn. `options` has one limit on blocks. Adds the times to the report.
Measured measure_in_rounds(const Options& options, int ranks, const std::string& nccl_library,
                           Report& report);

}  // namespace ccl::perf
