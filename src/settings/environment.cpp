#include "settings/environment.hpp"

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "base/fork_mutex.hpp"

namespace ccl::detail {
namespace {

std::atomic<VariableSource> nccl_variables{nullptr};

std::optional<std::string> text_of(const char* value) {
  if (value == nullptr) return {};
  return value;
}

/// Value of a source whose texts stay until the next call for the same variable.
std::optional<std::string> value_from(VariableSource source, const std::string& variable) {
  static ForkMutex mutex{[] {}};
  const std::lock_guard lock{mutex};
  return text_of(source(variable.c_str()));
}

}  // namespace

void set_nccl_variables(VariableSource source) {
  nccl_variables.store(source);
}

std::optional<std::string> environment_value(const std::string& variable) {
  const VariableSource source = nccl_variables.load();
  if (source != nullptr && variable.starts_with("NCCL_")) return value_from(source, variable);
  return text_of(std::getenv(variable.c_str()));
}

}  // namespace ccl::detail
