#pragma once

#include <optional>
#include <string>

namespace ccl::detail {

/// Source of variables; null: there is no such variable. The text must stay until the next call for
/// the same variable.
using VariableSource = const char* (*)(const char* variable);

/// Replaces the environment for variables that begin with NCCL_. Call it before any setting is
/// read.
void set_nccl_variables(VariableSource source);
/// Returns the value of a variable. Any thread.
std::optional<std::string> environment_value(const std::string& variable);
/// Adds a variable to the environment of the process, for other libraries, if it has no value or an
/// empty one there. Returns true if it did. One thread at a time; others may read the environment.
bool add_variable(const std::string& variable, const std::string& value);

}  // namespace ccl::detail
