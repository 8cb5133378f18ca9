#include "nccl/plug_in/env.hpp"

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/plug_in_lines.hpp"

using namespace ccl::test;

namespace {
constexpr const char* profiler = CCL_TEST_PROFILER_PLUG_IN;
bool make_ranks() {
  const NcclRanks all{2};
  return true;
}
}  // namespace

TEST_CASE("an env plug-in gives the values of NCCL's variables") {
  const std::string all =
      plug_in_lines(profiler,
                    {{"NCCL_ENV_PLUGIN", CCL_TEST_ENV_PLUG_IN},
                     {"CCL_TEST_PROFILER_PATH", profiler},
                     {"NCCL_PROFILER_PLUGIN", "none"}},  // hidden by the plug-in
                    make_ranks);
  CHECK(mentions(all, "0 init"));
}

TEST_CASE("if an env plug-in refuses, the environment counts") {
  const auto with = [](const char* named) {
    return plug_in_lines(profiler,
                         {{"NCCL_ENV_PLUGIN", CCL_TEST_ENV_PLUG_IN},
                          {"CCL_TEST_ENV_REFUSES", "1"},
                          {"NCCL_PROFILER_PLUGIN", named}},
                         make_ranks);
  };
  CHECK(with("none") == "not loaded");
  CHECK(mentions(with(profiler), "0 init"));
}
