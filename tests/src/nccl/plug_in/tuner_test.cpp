#include "nccl/plug_in/tuner.hpp"

#include <algorithm>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/plug_in_lines.hpp"

using namespace ccl::test;

namespace {

constexpr const char* tuner = CCL_TEST_TUNER_PLUG_IN;
constexpr const char* profiler = CCL_TEST_PROFILER_PLUG_IN;

bool sum_and_gather() {
  const NcclRanks all{2};
  std::vector<float> in(2000, 1), out[2] = {in, in};
  bool good = true;
  for (int call = 0; call < 3; ++call) {
    good = good && all.group([&](int r, ncclComm_t comm) {
      return ncclAllReduce(in.data(), out[r].data(), 1000, ncclFloat, ncclSum, comm, nullptr);
    }) == ncclSuccess;
    good = good && out[0][999] == 2 && out[1][0] == 2;
  }
  return good && all.group([&](int r, ncclComm_t comm) {
    return ncclAllGather(in.data(), out[r].data(), 1000, ncclFloat, comm, nullptr);
  }) == ncclSuccess;
}

/// What runs, by the profiler plug-in.
std::string runs(const char* wanted) {
  return plug_in_lines(profiler,
                       {{"NCCL_TUNER_PLUGIN", tuner},
                        {"NCCL_PROFILER_PLUGIN", profiler},
                        {"CCL_TEST_TUNER", wanted}},
                       sum_and_gather);
}

}  // namespace

TEST_CASE("a tuner plug-in is asked once for a size, with what can run") {
  const std::string all = plug_in_lines(tuner, {{"NCCL_TUNER_PLUGIN", tuner}}, sum_and_gather);
  INFO(all);
  CHECK(mentions(all, "init 1/2\n"));
  CHECK(mentions(all, "choose 4 4000 of 7x3 0:"));  // Tree
  CHECK(mentions(all, " 1:2"));                     // Ring/Simple
  CHECK(mentions(all, "choose 2 8000 of 7x3 1:"));
  CHECK(std::ranges::count(all, '\n') == 1 + 2 + 1);  // rank 0 asks
  CHECK(all.ends_with("end\n"));
}

TEST_CASE("what a tuner plug-in makes the fastest runs") {
  CHECK(mentions(runs("0:2"), "coll AllReduce 0 1000 ncclFloat32 root 0 TREE SIMPLE"));
  CHECK(mentions(runs("1:2"), "coll AllReduce 0 1000 ncclFloat32 root 0 RING SIMPLE"));
  CHECK(mentions(runs("1:2"), "coll AllGather 0 1000 ncclFloat32 root 0 RING SIMPLE"));
}

TEST_CASE("if a tuner plug-in changes nothing or refuses, ccl chooses") {
  const std::string own =
      plug_in_lines(profiler, {{"NCCL_PROFILER_PLUGIN", profiler}}, sum_and_gather);
  const auto line = [](const std::string& all) {
    const auto at = all.find("coll AllReduce 0");
    return at == all.npos ? "no call" : all.substr(at, all.find('\n', at) - at);
  };
  REQUIRE(mentions(line(own), "ncclFloat32"));
  CHECK(line(runs("")) == line(own));
  CHECK(line(runs("5:1")) == line(own));  // NVLSTree, which cannot run
  const std::string refused = plug_in_lines(profiler,
                                            {{"NCCL_TUNER_PLUGIN", tuner},
                                             {"NCCL_PROFILER_PLUGIN", profiler},
                                             {"CCL_TEST_TUNER_REFUSES", "1"},
                                             {"CCL_TEST_TUNER", "0:2"}},
                                            sum_and_gather);
  CHECK(line(refused) == line(own));
}
