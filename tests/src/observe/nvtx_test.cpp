// Ranges of NVTX, which a tool receives that NVTX loads into the process.
#include "comm/observe/nvtx.hpp"

#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/on_ranks.hpp"
#include "support/skip.hpp"
#include <dlfcn.h>

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Tree, Simple, DefaultTransport>;

int count(const std::string& text, const std::string& line) {
  int found = 0;
  for (auto at = text.find(line + "\n"); at != text.npos; at = text.find(line + "\n", at + 1)) {
    ++found;
  }
  return found;
}
}  // namespace

TEST_CASE("a tool gets a range for each call, with its composition and bytes") {
#if !__has_include(<nvtx3/nvToolsExt.h>)
  return skip("there is no nvtx3/nvToolsExt.h");
#endif
  // NVTX looks for a tool at the first call of the process.
  setenv("NVTX_INJECTION64_PATH", CCL_TEST_NVTX_TOOL, 1);
  Config config;
  config.name = "job";
  check_well(on_ranks(2, config, [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, Sums::create(comm));
    const std::vector<float> x(1000, 1.f);
    std::vector<float> y(1000);
    CCL_CHECK(sums(x.data(), y.data(), 1000));
    return sums(x.data(), y.data(), 10);
  }));
  void* const tool = dlopen(CCL_TEST_NVTX_TOOL, RTLD_NOW);
  REQUIRE(tool != nullptr);
  const auto text_of = reinterpret_cast<const char* (*)()>(dlsym(tool, "nvtx_tool_text"));
  REQUIRE(text_of != nullptr);
  const std::string text = text_of();
  INFO(text);
  CHECK(count(text, "domain ccl") == 1);
  CHECK(count(text, "category communicator job of 2 ranks") == 1);
  CHECK(count(text, "push all_reduce/Tree/Simple/any 4000") == 2);
  CHECK(count(text, "push all_reduce/Tree/Simple/any 40") == 2);
  CHECK(count(text, "pop") == 4);
  SECTION("a call that fails ends its range") {
    (void)on_ranks(2, {}, [](const Communicator& comm) -> Result<void> {
      CCL_TRY(const auto sums, Sums::create(comm));
      comm.abort();  // the other rank's creation may fail by that
      float x = 1, y = 0;
      CHECK(!sums(&x, &y, 1).has_value());
      return {};
    });
    const std::string later = text_of();
    INFO(later);
    int pushes = 0;
    for (auto at = later.find("push "); at != later.npos; at = later.find("push ", at + 1)) {
      ++pushes;
    }
    CHECK(count(later, "pop") == pushes);
  }
  dlclose(tool);
}
