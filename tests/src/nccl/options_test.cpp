// Configurations of one call, and the switch for protected connections.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "nccl/abi/own_abi.hpp"
#include "support/environment.hpp"
#include "support/nccl_ranks.hpp"
#include "support/skip.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl::test;

namespace {

constexpr int ranks = 3;

/// Sums over all ranks with a configuration.
std::vector<float> sums(const NcclRanks& all, const ncclCollConfig_t* config,
                        ncclResult_t expected = ncclSuccess) {
  static const float one = 1;
  std::vector<float> out(ranks);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < ranks; ++r) {
    CHECK(ncclAllReduceConfig(&one, &out[std::size_t(r)], 1, ncclFloat, ncclSum, all[r], nullptr,
                              config) == ncclSuccess);
  }
  CHECK(ncclGroupEnd() == expected);
  return out;
}

}  // namespace

TEST_CASE("every call with a configuration does what it does without one") {
  const NcclRanks all{ranks};
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.maxCTAs = 2;
  config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
  config.userProfilerTag = 7;
  const ncclCollConfig_t* const given =
      GENERATE_REF(static_cast<ncclCollConfig_t*>(nullptr), &config);
  const float in[ranks] = {1, 2, 4};
  float out[ranks][ranks] = {};
  const auto run = [&](auto&& call) {
    std::memset(out, 0, sizeof out);
    REQUIRE(all.group([&](int r, ncclComm_t comm) { return call(in, out[r], comm); }) ==
            ncclSuccess);
  };
  run([&](const float* a, float* b, ncclComm_t comm) {
    return ncclAllReduceConfig(a, b, ranks, ncclFloat, ncclSum, comm, nullptr, given);
  });
  CHECK((out[0][0] == 3 && out[2][2] == 12));
  run([&](const float* a, float* b, ncclComm_t comm) {
    return ncclReduceConfig(a, b, ranks, ncclFloat, ncclMax, 1, comm, nullptr, given);
  });
  CHECK((out[1][2] == 4 && out[0][2] == 0));
  run([&](const float* a, float* b, ncclComm_t comm) {
    return ncclReduceScatterConfig(a, b, 1, ncclFloat, ncclSum, comm, nullptr, given);
  });
  CHECK((out[0][0] == 3 && out[2][0] == 12));
  run([&](const float* a, float* b, ncclComm_t comm) {
    return ncclAllGatherConfig(a, b, 1, ncclFloat, comm, nullptr, given);
  });
  CHECK((out[0][2] == 1 && out[2][0] == 1));
  run([&](const float* a, float* b, ncclComm_t comm) {
    return ncclBroadcastConfig(a, b, ranks, ncclFloat, 2, comm, nullptr, given);
  });
  CHECK(out[0][2] == 4);
  run([&](const float* a, float* b, ncclComm_t comm) {
    return ncclAlltoAllConfig(a, b, 1, ncclFloat, comm, nullptr, given);
  });
  CHECK((out[0][1] == 1 && out[2][0] == 4));
  run([&](const float* a, float* b, ncclComm_t comm) {
    return ncclGatherConfig(a, b, 1, ncclFloat, 1, comm, nullptr, given);
  });
  CHECK((out[1][2] == 1 && out[0][2] == 0));
  run([&](const float* a, float* b, ncclComm_t comm) {
    return ncclScatterConfig(a, b, 1, ncclFloat, 1, comm, nullptr, given);
  });
  CHECK((out[0][0] == 1 && out[2][0] == 4));
}

TEST_CASE("a call selects algorithms by name") {
  const NcclRanks all{ranks};
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  const std::vector<float> right(ranks, ranks);
  for (const char* const list : {"", "RING", "ring_simple", "RING,TREE", "^RING", "tree", "RING_LL",
                                 "tree_ll128", "^ring_simple"}) {
    CAPTURE(list);
    config.algSelection = list;
    CHECK(sums(all, &config) == right);
    CHECK(sums(all, &config) == right);  // from what the first has made
  }
  config.algSelection = "NVLS";  // which no CPU rank has
  sums(all, &config, ncclInvalidArgument);
  CHECK(last_error_has("algSelection NVLS leaves nothing"));
  config.algSelection = "no_such_name";
  sums(all, &config, ncclInvalidArgument);
  config.forceAlgSelection = 0;
  CHECK(sums(all, &config) == right);
  CHECK(sums(all, nullptr) == right);
}

TEST_CASE("blocks of a call are bounded, on CPU ranks by channels of its own") {
  NcclRanks all{ranks};
  std::vector<float> in(100000, 1), out(in.size() * ranks);
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  long long before = 0, after = 0;
  const auto bytes_of = [&](long long& bytes) {
    bytes = 0;
    REQUIRE(cclCommMemoryUsed(all[0], &bytes) == ncclSuccess);
    return bytes;
  };
  const auto sum = [&] {
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      return ncclAllReduceConfig(in.data(), out.data() + in.size() * std::size_t(r), in.size(),
                                 ncclFloat, ncclSum, comm, nullptr, &config);
    }) == ncclSuccess);
    CHECK(std::ranges::all_of(out, [](float one) { return one == ranks; }));
    before = after;
    return bytes_of(after) - before;
  };
  bytes_of(after);
  config.algSelection = "RING_SIMPLE";
  sum();
  config.maxCTAs = 1;
  const auto one = sum();
  CHECK(one > 0);
  CHECK(sum() == 0);  // the channels are there
  config.minCTAs = config.maxCTAs = 3;
  CHECK(sum() == 3 * one);
  config.maxCTAs = -5;  // which NCCL lets pass
  sum();
  std::vector<float> few(ranks);
  config.minCTAs = 100'000;  // so is this
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclAllReduceConfig(in.data(), &few[std::size_t(r)], 1, ncclFloat, ncclSum, comm,
                               nullptr, &config);
  }) == ncclSuccess);
}

TEST_CASE("configurations of calls that NCCL refuses, which do not spoil the group") {
  const NcclRanks all{ranks};
  const float one = 1;
  std::vector<float> out(ranks);
  const auto refused = [&](auto&& change, const char* words) {
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    change(config);
    CHECK(ncclAllReduceConfig(&one, &out[0], 1, ncclFloat, ncclSum, all[0], nullptr, &config) ==
          ncclInvalidArgument);
    CHECK(last_error_has(words));
  };
  REQUIRE(ncclGroupStart() == ncclSuccess);
  refused([](auto& c) { c.size = 63; }, "NCCL_COLLCONFIG_INITIALIZER");
  refused([](auto& c) { c.magic = 0; }, "NCCL_COLLCONFIG_INITIALIZER");
  refused([](auto& c) { c.forceAlgSelection = 2; }, "forceAlgSelection is 2");
  refused([](auto& c) { c.CTAPolicy = 4; }, "CTAPolicy is 4");
  ncclConfigExt_t unknown{nullptr, {0x63636c, 99}, {0}};
  refused([&](auto& c) { c.ext = &unknown; }, "no option 99");
  ncclConfigExt_t circle[3] = {};
  for (const int back : {0, 1, 2}) {
    for (int i = 0; i < 3; ++i) circle[i].next = &circle[i < 2 ? i + 1 : back];
    refused([&](auto& c) { c.ext = circle; }, "config.ext is a circle");
  }
  for (int r = 0; r < ranks; ++r) {
    CHECK(ncclAllReduce(&one, &out[std::size_t(r)], 1, ncclFloat, ncclSum, all[r], nullptr) ==
          ncclSuccess);
  }
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(out == std::vector<float>(ranks, ranks));

  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  ncclConfigExt_t others{nullptr, {17, 1}, {5}};  // another library's
  config.ext = &others;
  CHECK(sums(all, &config) == std::vector<float>(ranks, ranks));
  // A structure of NCCL 2.31, which ends before launchCompletionEvent, and one of a later version.
  config.ext = nullptr;
  config.size = 64;
  config.launchCompletionEvent = reinterpret_cast<cudaEvent_t>(1);
  CHECK(sums(all, &config) == std::vector<float>(ranks, ranks));
  struct {
    ncclCollConfig_t known = NCCL_COLLCONFIG_INITIALIZER;
    int more = 1;
  } longer;
  longer.known.size = sizeof longer;
  CHECK(sums(all, &longer.known) == std::vector<float>(ranks, ranks));
}

TEST_CASE("a key protects connections, and other keys are refused") {
  ncclEncryptionConfig_t config = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  CHECK(ncclSetEncryption(nullptr) == ncclSuccess);
  CHECK(ncclSetEncryption(&config) == ncclSuccess);
  config.mode = 2;
  CHECK(ncclSetEncryption(&config) == ncclInvalidArgument);
  CHECK(last_error_has("mode is 2"));
  config.mode = NCCL_ENCRYPTION_MODE_PSK;
  CHECK(ncclSetEncryption(&config) == ncclInvalidArgument);
  CHECK(last_error_has("psk has 0 bytes"));
  config.psk = "0123456789012345678901234567890";
  CHECK(ncclSetEncryption(&config) == ncclInvalidArgument);
  config.psk = "01234567890123456789012345678901";
  config.magic = 1;
  CHECK(ncclSetEncryption(&config) == ncclInvalidArgument);
  config.magic = NCCL_API_MAGIC;
  config.size = 16;  // no mode
  CHECK(ncclSetEncryption(&config) == ncclSuccess);
  config.size = sizeof config;
  const auto set = ncclSetEncryption(&config);
  if (set != ncclSuccess) {  // without libsodium: refused, not plain
    CHECK(set == ncclInvalidUsage);
    CHECK(last_error_has("cannot be encrypted"));
    return ccl::test::skip("there is no libsodium: nothing was encrypted");
  }
  {
    const NcclRanks all{ranks};
    CHECK(sums(all, nullptr) == std::vector<float>(ranks, ranks));
  }
  CHECK(ncclSetEncryption(nullptr) == ncclSuccess);
}

TEST_CASE("ranks with other keys do not find each other") {
  ncclEncryptionConfig_t config = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  config.mode = NCCL_ENCRYPTION_MODE_PSK;
  config.psk = "01234567890123456789012345678901";
  if (ncclSetEncryption(&config) != ncclSuccess) return ccl::test::skip("there is no libsodium");
  for (const char* const other :
       {"01234567890123456789012345678901", "01234567890123456789012345678902", ""}) {
    CAPTURE(other);
    const bool same = std::strcmp(other, "01234567890123456789012345678901") == 0;
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    const auto child = ::fork();
    if (child == 0) {
      config.psk = other;
      REQUIRE(ncclSetEncryption(*other == 0 ? nullptr : &config) == ncclSuccess);
    }
    ncclComm_t comm = nullptr;
    ncclResult_t made = ncclNumResults;
    {
      const Environment limit{"CCL_INIT_TIMEOUT", same ? "60" : "2"};
      made = ncclCommInitRank(&comm, 2, id, child == 0 ? 1 : 0);
    }
    if (made == ncclSuccess) made = ncclCommDestroy(comm);
    const int failed = (made == ncclSuccess) == same ? 0 : 1;
    if (child == 0) ::_exit(failed);
    int status = 1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(failed == 0);
  }
  CHECK(ncclSetEncryption(nullptr) == ncclSuccess);
}
