#pragma once

#include <ccl/detail/choose/tuning.hpp>

#include <vector>

#include "options.hpp"
#include "report.hpp"

namespace ccl::perf {

/// Writes the measurements of every composition to the file of --tune. They replace its rows of the
/// same sizes.
Result<void> write_tuning(const Options& options, const detail::TuningCase& where,
                          const std::string& machine, const std::vector<Row>& rows);

}  // namespace ccl::perf
