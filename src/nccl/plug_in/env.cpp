#include "nccl/plug_in/env.hpp"

#include <ccl/comm/log.hpp>

#include <array>
#include <cstdlib>
#include <string>

#include "nccl/plug_in/abi.hpp"
#include "plug_in/library.hpp"
#include "settings/environment.hpp"

namespace ccl::detail::nccl {
namespace {

constexpr std::array<std::string_view, 2> symbols{"ncclEnvPlugin_v2", "ncclEnvPlugin_v1"};

/// Version 1, whose `init` has no logger.
struct EnvPlugInV1 {
  const char* name;
  ncclResult_t (*init)(std::uint8_t major, std::uint8_t minor, std::uint8_t patch,
                       const char* suffix);
  ncclResult_t (*finalize)();
  const char* (*get)(const char* variable);
};

template <class PlugIn, class... Logger>
bool take(const void* object, Logger... logger) {
  const auto& plug_in = *static_cast<const PlugIn*>(object);
  constexpr int version = NCCL_VERSION_CODE;
  const auto part = [](int of) { return std::uint8_t(of); };
  if (plug_in.init(part(version / 10000), part(version / 100 % 100), part(version % 100), "",
                   logger...) != ncclSuccess) {
    return false;
  }
  set_nccl_variables(plug_in.get);
  return true;
}

bool load() {
  // By the environment itself: the plug-in gives the others.
  const char* const setting = std::getenv("NCCL_ENV_PLUGIN");
  const auto found = find_plug_in("env", setting == nullptr ? "" : setting, symbols);
  if (found.object == nullptr) return true;
  const bool taken = found.symbol == symbols[0] ? take<EnvPlugIn>(found.object, &log_of_plug_in)
                                                : take<EnvPlugInV1>(found.object);
  if (!taken) log_warn(LogPart::env, "the env plug-in refuses; the environment counts");
  return taken;
}

}  // namespace

void load_env_plug_in() {
  [[maybe_unused]] static const bool loaded = load();
}

}  // namespace ccl::detail::nccl
