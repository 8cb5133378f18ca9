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

}  // namespace ccl::detail
