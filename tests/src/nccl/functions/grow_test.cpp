// Communicators that grow, rest and are revoked.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/nccl_ranks.hpp"

using namespace ccl::test;

namespace {

/// The sum of 1 over all ranks, as each rank has it.
std::vector<float> ones(const std::vector<ncclComm_t>& comms) {
  static const float one = 1;
  std::vector<float> sums(comms.size());
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (std::size_t r = 0; r < comms.size(); ++r) {
    CHECK(ncclAllReduce(&one, &sums[r], 1, ncclFloat, ncclSum, comms[r], nullptr) == ncclSuccess);
  }
  CHECK(ncclGroupEnd() == ncclSuccess);
  return sums;
}

/// Grows to `ranks` ranks, by calls of one thread.
std::vector<ncclComm_t> grown(const NcclRanks& all, int ranks, int coordinator) {
  std::vector<ncclComm_t> made(static_cast<std::size_t>(ranks));
  ncclUniqueId id;
  REQUIRE(ncclCommGetUniqueId(all[coordinator], &id) == ncclSuccess);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < ranks; ++r) {
    ncclComm_t& where = made[std::size_t(r)];
    if (r < all.count()) {
      const ncclUniqueId* const own = r == coordinator ? &id : nullptr;
      CHECK(ncclCommGrow(all[r], ranks, own, -1, &where, nullptr) == ncclSuccess);
    } else {
      CHECK(ncclCommGrow(nullptr, ranks, &id, r, &where, nullptr) == ncclSuccess);
    }
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  return made;
}

}  // namespace

TEST_CASE("a communicator grows, its ranks keep their numbers, and it stays well") {
  const int coordinator = GENERATE(0, 1);
  const NcclRanks all{2};
  const auto four = grown(all, 4, coordinator);
  for (int r = 0; r < 4; ++r) {
    int rank = -1, count = -1;
    CHECK(ncclCommUserRank(four[std::size_t(r)], &rank) == ncclSuccess);
    CHECK(ncclCommCount(four[std::size_t(r)], &count) == ncclSuccess);
    CHECK(rank == r);
    CHECK(count == 4);
  }
  CHECK(ones(four) == std::vector<float>(4, 4));
  CHECK(ones(all.comms) == std::vector<float>(2, 2));
  const auto three = grown(all, 3, coordinator);  // once more, with another id
  CHECK(ones(three) == std::vector<float>(3, 3));
  for (ncclComm_t comm : four) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  for (ncclComm_t comm : three) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("a communicator of one rank grows by a rank that comes first") {
  const NcclRanks alone{1};
  ncclUniqueId id;
  REQUIRE(ncclCommGetUniqueId(alone[0], &id) == ncclSuccess);
  ncclComm_t made[2] = {};
  ncclResult_t joined = ncclNumResults;
  std::thread second{[&] { joined = ncclCommGrow(nullptr, 2, &id, 1, &made[1], nullptr); }};
  CHECK(ncclCommGrow(alone[0], 2, nullptr, -1, &made[0], nullptr) == ncclSuccess);
  second.join();
  CHECK(joined == ncclSuccess);
  CHECK(ones({made[0], made[1]}) == std::vector<float>(2, 2));
  for (ncclComm_t comm : made) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("growing refuses what cannot be, on all ranks alike") {
  const NcclRanks all{2};
  ncclComm_t made = all[0];
  ncclUniqueId id;
  CHECK(ncclCommGetUniqueId(all[0], nullptr) == ncclInvalidArgument);
  REQUIRE(ncclCommGetUniqueId(all[0], &id) == ncclSuccess);
  CHECK(ncclCommGetUniqueId(all[0], &id) == ncclInvalidUsage);
  CHECK(last_error_has("was called already"));
  CHECK(ncclCommGrow(all[0], 3, &id, -1, nullptr, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommGrow(all[0], 2, &id, -1, &made, nullptr) == ncclInvalidArgument);
  CHECK(last_error_has("nRanks is 2"));
  CHECK(made == nullptr);
  CHECK(ncclCommGrow(all[0], 3, &id, 0, &made, nullptr) == ncclInvalidArgument);
  CHECK(last_error_has("pass -1"));
  CHECK(ncclCommGrow(nullptr, 3, nullptr, 2, &made, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommGrow(nullptr, 3, &id, 3, &made, nullptr) == ncclInvalidArgument);
  CHECK(last_error_has("rank 3 of 3"));

  // Ranks that pass different numbers; then none has an id any more.
  for (const int second : {4, 3}) {
    ncclComm_t parts[2] = {};
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommGrow(all[0], 3, nullptr, -1, &parts[0], nullptr) == ncclSuccess);
    CHECK(ncclCommGrow(all[1], second, nullptr, -1, &parts[1], nullptr) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    for (ncclComm_t part : parts) {
      ncclResult_t state = ncclSuccess;
      CHECK(ncclCommGetAsyncError(part, &state) == ncclSuccess);
      CHECK(state == ncclInvalidUsage);
    }
  }
  CHECK(last_error_has("ncclCommGetUniqueId"));
  CHECK(ones(all.comms) == std::vector<float>(2, 2));
}

TEST_CASE("a suspended communicator refuses calls until it is resumed") {
  const NcclRanks all{2};
  std::uint64_t value = 7;
  CHECK(ncclCommSuspend(all[0], 0) == ncclSuccess);  // nothing
  CHECK(ncclCommMemStats(all[0], ncclStatGpuMemSuspended, &value) == ncclSuccess);
  CHECK(value == 0);
  CHECK(ncclCommResume(all[0]) == ncclInvalidUsage);
  CHECK(last_error_has("not suspended"));
  REQUIRE(all.group([](int, ncclComm_t comm) { return ncclCommSuspend(comm, NCCL_SUSPEND_MEM); }) ==
          ncclSuccess);
  CHECK(ncclCommMemStats(all[0], ncclStatGpuMemSuspended, &value) == ncclSuccess);
  CHECK(value == 1);
  float data = 1;
  CHECK(ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, all[0], nullptr) == ncclInvalidUsage);
  CHECK(last_error_has("suspended"));
  CHECK(ncclCommSuspend(all[0], NCCL_SUSPEND_MEM) == ncclInvalidUsage);
  REQUIRE(all.group([](int, ncclComm_t comm) { return ncclCommResume(comm); }) == ncclSuccess);
  CHECK(ones(all.comms) == std::vector<float>(2, 2));
  for (const auto stat : {ncclStatGpuMemSuspend, ncclStatGpuMemPersist, ncclStatGpuMemTotal}) {
    CHECK(ncclCommMemStats(all[0], stat, &value) == ncclSuccess);
    CHECK(value == 0);  // ranks of CPUs have no GPU memory
  }
  CHECK(ncclCommMemStats(all[0], ncclCommMemStat_t(3), nullptr) == ncclInvalidArgument);
}

TEST_CASE("rest and growth of a communicator that has ended say that it has") {
  const NcclRanks all{2}, others{2};
  for (int r = 0; r < 2; ++r) CHECK(ncclCommRevoke(all[r], NCCL_REVOKE_DEFAULT) == ncclSuccess);
  REQUIRE(others.group([](int, ncclComm_t comm) {
    return ncclCommSuspend(comm, NCCL_SUSPEND_MEM);
  }) == ncclSuccess);
  REQUIRE(others.group([](int, ncclComm_t comm) { return ncclCommFinalize(comm); }) == ncclSuccess);
  ncclUniqueId id;
  ncclComm_t grown = nullptr;
  float data = 1;
  CHECK(ncclCommSuspend(others[0], NCCL_SUSPEND_MEM) == ncclInvalidUsage);
  CHECK(last_error_has("has been finalized"));
  for (const bool revoked : {true, false}) {
    const ncclComm_t comm = revoked ? all[0] : others[0];
    const char* const why = revoked ? "ncclCommRevoke was called" : "has been finalized";
    CHECK(ncclCommResume(comm) == ncclInvalidUsage);
    CHECK(last_error_has(why));
    CHECK(ncclCommGetUniqueId(comm, &id) == ncclInvalidUsage);
    CHECK(last_error_has(why));
    CHECK(ncclCommGrow(comm, 3, nullptr, -1, &grown, nullptr) == ncclInvalidUsage);
    CHECK(last_error_has(why));
    CHECK(ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comm, nullptr) == ncclInvalidUsage);
    CHECK(last_error_has(why));
  }
}

TEST_CASE("a revoked communicator refuses calls, and can be split and shrunk") {
  NcclRanks all{3};
  for (int r = 0; r < 3; ++r) CHECK(ncclCommRevoke(all[r], 1) == ncclInvalidArgument);
  for (int r = 0; r < 3; ++r) CHECK(ncclCommRevoke(all[r], NCCL_REVOKE_DEFAULT) == ncclSuccess);
  CHECK(ncclCommRevoke(all[0], NCCL_REVOKE_DEFAULT) == ncclInvalidArgument);
  CHECK(last_error_has("revoked already"));
  ncclResult_t state = ncclInProgress;
  CHECK(ncclCommGetAsyncError(all[0], &state) == ncclSuccess);
  CHECK(state == ncclSuccess);
  float data = 1;
  CHECK(ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, all[0], nullptr) == ncclInvalidUsage);
  CHECK(last_error_has("ncclCommRevoke was called"));
  CHECK(ncclCommFinalize(all[0]) == ncclInvalidArgument);
  std::vector<ncclComm_t> parts(3);
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommSplit(comm, r == 1 ? 1 : 0, r, &parts[std::size_t(r)], nullptr);
  }) == ncclSuccess);
  CHECK(ones(parts) == std::vector<float>{2, 1, 2});
  for (ncclComm_t part : parts) CHECK(ncclCommDestroy(part) == ncclSuccess);
}

TEST_CASE("a revoked communicator rests, and registers memory") {
  const int ranks = GENERATE(1, 3);
  NcclRanks all{ranks};
  for (int r = 0; r < ranks; ++r) CHECK(ncclCommRevoke(all[r], NCCL_REVOKE_DEFAULT) == ncclSuccess);
  std::vector<char> memory(100);
  void* handle = nullptr;
  CHECK(ncclCommRegister(all[0], memory.data(), memory.size(), &handle) == ncclSuccess);
  CHECK(handle != nullptr);
  CHECK(ncclCommDeregister(all[0], handle) == ncclSuccess);
  CHECK(ncclCommRegister(all[0], nullptr, memory.size(), &handle) == ncclInvalidArgument);
  const auto suspend = [](int, ncclComm_t comm) { return ncclCommSuspend(comm, NCCL_SUSPEND_MEM); };
  REQUIRE(all.group(suspend) == ncclSuccess);
  std::uint64_t suspended = 0;
  CHECK(ncclCommMemStats(all[0], ncclStatGpuMemSuspended, &suspended) == ncclSuccess);
  CHECK(suspended == 1);
  CHECK(ncclCommSuspend(all[0], NCCL_SUSPEND_MEM) == ncclInvalidUsage);
  CHECK(last_error_has("suspended already"));
  CHECK(ncclCommResume(all[0]) == ncclInvalidUsage);
  CHECK(last_error_has("ncclCommRevoke was called"));
  std::vector<ncclComm_t> parts(std::size_t(ranks), nullptr);
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommShrink(comm, nullptr, 0, &parts[std::size_t(r)], nullptr, NCCL_SHRINK_DEFAULT);
  }) == ncclSuccess);
  CHECK(ones(parts) == std::vector<float>(std::size_t(ranks), float(ranks)));
  for (ncclComm_t part : parts) CHECK(ncclCommDestroy(part) == ncclSuccess);
}

TEST_CASE("a revoke ends a call that waits for a rank that does not come") {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = GENERATE(1, 0);
  const NcclRanks all{2, &config};
  float data = 1;
  std::atomic<bool> called{false};
  ncclResult_t result = ncclNumResults;
  std::thread waiting{[&] {
    called = true;
    result = ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, all[0], nullptr);
  }};
  while (!called) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  REQUIRE(ncclCommRevoke(all[0], NCCL_REVOKE_DEFAULT) == ncclSuccess);
  waiting.join();
  // Without blocking the call has begun, and its communicator is at rest.
  CHECK(result == (config.blocking == 1 ? ncclRemoteError : ncclInProgress));
  const auto state = NcclRanks::end_of(all[0]);
  CHECK((state == ncclSuccess || state == ncclRemoteError));
  const auto after = ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, all[0], nullptr);
  CHECK((after == ncclInProgress ? NcclRanks::end_of(all[0]) : after) == ncclInvalidUsage);
  REQUIRE(ncclCommRevoke(all[1], NCCL_REVOKE_DEFAULT) == ncclSuccess);
  // What is left of it can be used on.
  std::vector<ncclComm_t> parts(2);
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommSplit(comm, 0, r, &parts[std::size_t(r)], nullptr);
  }) != ncclInvalidUsage);
  for (ncclComm_t part : parts) CHECK(NcclRanks::end_of(part) == ncclSuccess);
  for (ncclComm_t part : parts) CHECK(ncclCommDestroy(part) == ncclSuccess);
}
