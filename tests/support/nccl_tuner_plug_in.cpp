// A tuner plug-in: it makes what CCL_TEST_TUNER says (ALGORITHM:PROTOCOL, by NCCL's numbers) the
// fastest, and keeps what it is called with as lines of text.
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "nccl/plug_in/abi.hpp"

using namespace ccl::detail;
using namespace ccl::detail::nccl;

namespace {

std::mutex mutex;
std::string lines;

ncclResult_t init(void** context, std::uint64_t, std::size_t ranks, std::size_t hosts,
                  PlugInLogger log, NvlinkDomains* domains, TunerConstants* constants) {
  const std::lock_guard lock{mutex};
  *context = &lines;
  log(plug_in_info, 1, "tuner.cc", 1, "%d domains", domains->count);
  lines += "init " + std::to_string(hosts) + "/" + std::to_string(ranks) +
           (constants->values[0] == 0 ? "\n" : " with constants\n");
  return std::getenv("CCL_TEST_TUNER_REFUSES") != nullptr ? ncclInternalError : ncclSuccess;
}

ncclResult_t choose(void*, TunedFunction function, std::size_t bytes, int, float** table,
                    int algorithms, int protocols, int, int* channels) {
  const std::lock_guard lock{mutex};
  float(*const us)[3] = reinterpret_cast<float(*)[3]>(table);
  lines += "choose " + std::to_string(int(function)) + " " + std::to_string(bytes) + " of " +
           std::to_string(algorithms) + "x" + std::to_string(protocols);
  for (int a = 0; a < algorithms; ++a) {
    for (int p = 0; p < protocols; ++p) {
      if (us[a][p] >= 0) lines += " " + std::to_string(a) + ":" + std::to_string(p);
    }
  }
  lines += "\n";
  int algorithm = 0, protocol = 0;
  const char* const wanted = std::getenv("CCL_TEST_TUNER");
  if (wanted != nullptr && std::sscanf(wanted, "%d:%d", &algorithm, &protocol) == 2 &&
      us[algorithm][protocol] >= 0) {
    us[algorithm][protocol] = 0;
  }
  *channels = 4;
  return ncclSuccess;
}

ncclResult_t finalize(void*) {
  const std::lock_guard lock{mutex};
  lines += "end\n";
  return ncclSuccess;
}

}  // namespace

extern "C" {
__attribute__((visibility("default")))
TunerPlugIn ncclTunerPlugin_v5{"test", init, choose, finalize};
__attribute__((visibility("default"))) const char* ccl_test_lines() {
  const std::lock_guard lock{mutex};
  return lines.c_str();
}
}
