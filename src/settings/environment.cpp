#include "settings/environment.hpp"

#include <atomic>
#include <cstdlib>
#include <list>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include <unistd.h>

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

/// Memory of the environment, until the process ends.
struct Added {
  std::list<std::string> lines;
  std::list<std::vector<char*>> arrays;
};

}  // namespace

void set_nccl_variables(VariableSource source) {
  nccl_variables.store(source);
}

std::optional<std::string> environment_value(const std::string& variable) {
  const VariableSource source = nccl_variables.load();
  if (source != nullptr && variable.starts_with("NCCL_")) return value_from(source, variable);
  return text_of(std::getenv(variable.c_str()));
}

bool add_variable(const std::string& variable, const std::string& value) {
  const char* const before = std::getenv(variable.c_str());
  if (before != nullptr && *before != 0) return false;
  static constinit MadeOnce<Added> added;
  // Not setenv, which may free the array that another thread is reading.
  auto& all = added.get().arrays.emplace_back();
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    if (!std::string_view{*at}.starts_with(variable + "=")) all.push_back(*at);
  }
  all.push_back(added.get().lines.emplace_back(variable + "=" + value).data());
  all.push_back(nullptr);
  std::atomic_ref{environ}.store(all.data(), std::memory_order_release);
  return true;
}

}  // namespace ccl::detail
