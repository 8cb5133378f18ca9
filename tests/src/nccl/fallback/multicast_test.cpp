// NVLink multicast of the library that CCL_NCCL_FALLBACK names. Each case is a process of its own,
// which loads that library for the first time.
#include <cstdlib>
#include <string>

#include "support/environment.hpp"
#include "support/log_of.hpp"
#include "support/nccl_fallback.hpp"
#include "support/nccl_ranks.hpp"
#include "support/processes.hpp"

using namespace ccl::test;

namespace {
constexpr const char* library = CCL_TEST_FALLBACK;

struct Found {
  int communicators = -1;  // of the library; -1: it is not loaded
  int with_multicast = -1;
  std::string variable = "none";  // NCCL_NVLS_ENABLE, after that
  std::string lines;
};

int times(const std::string& text, const std::string& words) {
  int n = 0;
  for (auto at = text.find(words); at != text.npos; at = text.find(words, at + 1)) ++n;
  return n;
}

/// Makes two communicators, one after the other, and looks at the first and at the log of both.
Found make() {
  Found found;
  found.lines = log_of([&] {
    ncclResetDebugInit();
    {
      const NcclRanks all{2};
      found.communicators = made_by(library, "communicators");
    }
    const NcclRanks again{2};
    found.with_multicast = made_by(library, "multicast");
  });
  if (const char* const value = std::getenv("NCCL_NVLS_ENABLE")) found.variable = value;
  return found;
}

/// Runs `check(make())` in a process with these variables. "none": the variable is not set.
template <class Check>
void in_process(const std::string& theirs, const std::string& ours, Check check,
                const char* env_plug_in = nullptr) {
  const pid_t pid = start_process([&]() -> int {
    ::setenv("CCL_NCCL_FALLBACK", library, 1);
    if (theirs != "none") ::setenv("NCCL_NVLS_ENABLE", theirs.c_str(), 1);
    if (ours != "none") ::setenv("CCL_NVLS_ENABLE", ours.c_str(), 1);
    if (env_plug_in != nullptr) ::setenv("NCCL_ENV_PLUGIN", env_plug_in, 1);
    return check(make());
  });
  CHECK(reap({pid}, 60));
}

constexpr const char* added = "NCCL_NVLS_ENABLE=0 is added";
}  // namespace

TEST_CASE("the real NCCL does not use multicast unless it is allowed to, and is told so once") {
  const std::string theirs = GENERATE("none", "", "0"), ours = GENERATE("none", "0");
  CAPTURE(theirs, ours);
  in_process(theirs, ours, [&](const Found& found) {
    if (found.communicators != 2) return 1;
    if (found.with_multicast != 0) return 2;
    if (found.variable != "0") return 3;
    return times(found.lines, added) == (theirs == "0" ? 0 : 1) ? 0 : 4;
  });
}

TEST_CASE("a value of the program that would let it use multicast stays, and keeps it away") {
  const std::string theirs = GENERATE("1", "2", "00"), ours = GENERATE("none", "0");
  CAPTURE(theirs, ours);
  in_process(theirs, ours, [&](const Found& found) {
    if (found.communicators != -1) return 1;
    if (found.variable != theirs) return 2;
    const std::string why = "the environment gives " + theirs + " for NCCL_NVLS_ENABLE";
    return times(found.lines, why) > 0 && times(found.lines, added) == 0 ? 0 : 3;
  });
}

TEST_CASE("with CCL_NVLS_ENABLE=1, multicast is for NCCL and the program to decide") {
  const std::string theirs = GENERATE("none", "0", "1");
  CAPTURE(theirs);
  in_process(theirs, "1", [&](const Found& found) {
    if (found.communicators != 2) return 1;
    if (found.with_multicast != (theirs == "0" ? 0 : 4)) return 2;
    if (found.variable != theirs) return 3;
    return times(found.lines, added) == 0 ? 0 : 4;
  });
}

TEST_CASE("an env plug-in that would let it use multicast keeps it away, too") {
  const auto keeps_away = [](const Found& found) {
    if (found.communicators != -1) return 1;
    const std::string why = "the env plug-in gives no value for NCCL_NVLS_ENABLE";
    return times(found.lines, why) > 0 ? 0 : 2;
  };
  in_process("0", "none", keeps_away, CCL_TEST_ENV_PLUG_IN);  // which hides all variables
  in_process("none", "none", keeps_away, CCL_TEST_ENV_PLUG_IN);
}
