#include "settings/environment.hpp"

#include <atomic>
#include <cstdlib>

namespace ccl::detail {
namespace {
std::atomic<VariableSource> nccl_variables{nullptr};
}  // namespace

void set_nccl_variables(VariableSource source) {
  nccl_variables.store(source);
}

const char* environment_value(const std::string& variable) {
  const VariableSource source = nccl_variables.load();
  if (source == nullptr || !variable.starts_with("NCCL_")) return std::getenv(variable.c_str());
  return source(variable.c_str());
}

}  // namespace ccl::detail
