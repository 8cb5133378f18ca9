#pragma once

#include <set>
#include <string>

#include "options.hpp"

namespace ccl::perf {

// Rules between options. An option that breaks one ends the program with an error.

/// Returns the device. The machine is queried only if no option decides it.
Device resolve_device(const Options& options, const std::string& given, bool threads);

/// Refuses options that would have no effect.
void refuse_unused(const Options& options, bool threads);

/// Refuses operations without an in-place form.
void check_in_place(const Options& options, const std::set<std::string>& ops);

/// Refuses reductions of types that this program was built without.
void check_reductions(const Options& options);

/// Refuses options that the device does not have. `starts`: this program starts the ranks.
void check_device(const Options& options, bool starts);

/// Refuses files that cannot be written. Checks files on the first rank only if a launcher started
/// the ranks. Only that rank writes files, and others can lack the directory.
void check_files(const Options& options);

}  // namespace ccl::perf
