// An env plug-in: it names the profiler plug-in, and hides all other variables.
#include <cstdlib>
#include <cstring>

#include "nccl/plug_in/abi.hpp"

using namespace ccl::detail;
using namespace ccl::detail::nccl;

namespace {
ncclResult_t init(std::uint8_t major, std::uint8_t, std::uint8_t, const char* suffix,
                  PlugInLogger log) {
  log(plug_in_info, 1, "env.cc", 1, "version %d", int(major));
  const bool refuses = std::getenv("CCL_TEST_ENV_REFUSES") != nullptr;
  return major == 2 && suffix != nullptr && !refuses ? ncclSuccess : ncclInternalError;
}
ncclResult_t finalize() {
  return ncclSuccess;
}
const char* get(const char* variable) {
  if (std::strcmp(variable, "NCCL_PROFILER_PLUGIN") != 0) return nullptr;
  return std::getenv("CCL_TEST_PROFILER_PATH");
}
}  // namespace

extern "C" {
__attribute__((visibility("default"))) EnvPlugIn ncclEnvPlugin_v2{"test", init, finalize, get};
}
