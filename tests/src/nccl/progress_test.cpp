// Communicators that do not block: every call returns at once, and ncclCommGetAsyncError says when
// it is done.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "support/nccl_ranks.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl::test;

namespace {

ncclConfig_t not_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclNumResults;
  CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  return state;
}

/// Two ranks, of which this thread makes each call alone: a call that blocked would never return.
struct TwoRanks {
  ncclConfig_t config = not_blocking();
  NcclRanks all{2, &config};
  int calls = 0;

  /// Runs call(rank, communicator) on both ranks one after the other. The first is in progress
  /// until the second has made it.
  template <class F>
  void both(F&& call) {
    INFO("call " << ++calls << " of both ranks");
    CHECK(call(0, all[0]) == ncclInProgress);
    CHECK(state_of(all[0]) == ncclInProgress);
    const auto second = call(1, all[1]);
    CHECK((second == ncclInProgress || second == ncclSuccess));
    for (int r = 0; r < 2; ++r) CHECK(NcclRanks::end_of(all[r]) == ncclSuccess);
  }
};

}  // namespace

TEST_CASE("collectives and messages of communicators that do not block") {
  TwoRanks two;
  float data[2] = {1, 2}, sums[2] = {};
  two.both([&](int r, ncclComm_t comm) {
    return ncclAllReduce(&data[r], &sums[r], 1, ncclFloat, ncclSum, comm, nullptr);
  });
  CHECK((sums[0] == 3 && sums[1] == 3));
  two.both([&](int r, ncclComm_t comm) {
    return r == 0 ? ncclRecv(&sums[0], 1, ncclFloat, 1, comm, nullptr)
                  : ncclSend(&data[1], 1, ncclFloat, 0, comm, nullptr);
  });
  CHECK(sums[0] == 2);
  two.both([&](int r, ncclComm_t comm) {
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclAllReduce(&data[r], &sums[r], 1, ncclFloat, ncclMax, comm, nullptr) == ncclSuccess);
    CHECK(ncclBroadcast(&data[r], &data[r], 1, ncclFloat, 0, comm, nullptr) == ncclSuccess);
    return ncclGroupEnd();
  });
  CHECK((sums[0] == 2 && sums[1] == 2));
  CHECK((data[0] == 1 && data[1] == 1));
}

TEST_CASE("each further collective of communicators that do not block") {
  TwoRanks two;
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.maxCTAs = 1;
  const float in[2][2] = {{1, 2}, {3, 4}};
  float out[2][4] = {};
  using Call = ncclResult_t (*)(const float*, float*, ncclComm_t, const ncclCollConfig_t*);
  const auto run = [&](const char* name, Call call, std::vector<float> first,
                       std::vector<float> second) {
    INFO(name);
    for (auto& of_rank : out) std::fill_n(of_rank, 4, 0.f);
    two.both([&](int r, ncclComm_t comm) { return call(in[r], out[r], comm, &config); });
    CHECK(std::equal(first.begin(), first.end(), out[0]));
    CHECK(std::equal(second.begin(), second.end(), out[1]));
  };
  // Where rank 0 sends and does not receive, its part may be done before rank 1 calls: there the
  // root is rank 0 and receives.
#define CCL_TEST_CALL(...) \
  [](const float* a, float* b, ncclComm_t comm, const ncclCollConfig_t* given) { __VA_ARGS__; }
  run("Reduce",
      CCL_TEST_CALL((void)given; return ncclReduce(a, b, 2, ncclFloat, ncclSum, 0, comm, nullptr)),
      {4, 6}, {0, 0});
  run("ReduceScatter",
      CCL_TEST_CALL((void)given;
                    return ncclReduceScatter(a, b, 1, ncclFloat, ncclSum, comm, nullptr)),
      {4}, {6});
  run("AllGather",
      CCL_TEST_CALL((void)given; return ncclAllGather(a, b, 2, ncclFloat, comm, nullptr)),
      {1, 2, 3, 4}, {1, 2, 3, 4});
  run("AlltoAll",
      CCL_TEST_CALL((void)given; return ncclAlltoAll(a, b, 1, ncclFloat, comm, nullptr)), {1, 3},
      {2, 4});
  run("Gather", CCL_TEST_CALL((void)given; return ncclGather(a, b, 2, ncclFloat, 0, comm, nullptr)),
      {1, 2, 3, 4}, {0});
  run("Scatter",
      CCL_TEST_CALL((void)given; return ncclScatter(a, b, 1, ncclFloat, 1, comm, nullptr)), {3},
      {4});
  run("Bcast",
      CCL_TEST_CALL((void)given; b[0] = a[0]; return ncclBcast(b, 1, ncclFloat, 1, comm, nullptr)),
      {3}, {3});
  run("AllReduceConfig",
      CCL_TEST_CALL(return ncclAllReduceConfig(a, b, 2, ncclFloat, ncclSum, comm, nullptr, given)),
      {4, 6}, {4, 6});
  run("ReduceConfig",
      CCL_TEST_CALL(return ncclReduceConfig(a, b, 2, ncclFloat, ncclSum, 0, comm, nullptr, given)),
      {4, 6}, {0, 0});
  run("ReduceScatterConfig",
      CCL_TEST_CALL(
          return ncclReduceScatterConfig(a, b, 1, ncclFloat, ncclSum, comm, nullptr, given)),
      {4}, {6});
  run("AllGatherConfig",
      CCL_TEST_CALL(return ncclAllGatherConfig(a, b, 2, ncclFloat, comm, nullptr, given)),
      {1, 2, 3, 4}, {1, 2, 3, 4});
  run("BroadcastConfig",
      CCL_TEST_CALL(return ncclBroadcastConfig(a, b, 2, ncclFloat, 1, comm, nullptr, given)),
      {3, 4}, {3, 4});
  run("AlltoAllConfig",
      CCL_TEST_CALL(return ncclAlltoAllConfig(a, b, 1, ncclFloat, comm, nullptr, given)), {1, 3},
      {2, 4});
  run("GatherConfig",
      CCL_TEST_CALL(return ncclGatherConfig(a, b, 2, ncclFloat, 0, comm, nullptr, given)),
      {1, 2, 3, 4}, {0});
  run("ScatterConfig",
      CCL_TEST_CALL(return ncclScatterConfig(a, b, 1, ncclFloat, 1, comm, nullptr, given)), {3},
      {4});
#undef CCL_TEST_CALL
}

TEST_CASE("signals alone, counts of memory and a revoke of communicators that do not block") {
  TwoRanks two;
  std::vector<float> memory[2] = {std::vector<float>(1024), std::vector<float>(1024)};
  ncclWindow_t windows[2] = {};
  two.both([&](int r, ncclComm_t comm) {
    return ncclCommWindowRegister(comm, memory[r].data(), 4096, &windows[r], NCCL_WIN_DEFAULT);
  });
  ncclWaitSignalDesc_t from{1, 1, 0, 0};
  CHECK(ncclWaitSignal(1, &from, two.all[0], nullptr) == ncclInProgress);
  // Not collective: it is answered while the other call waits.
  std::uint64_t bytes = ~std::uint64_t{0};
  const auto asked = ncclCommMemStats(two.all[0], ncclStatGpuMemTotal, &bytes);
  CHECK(asked == ncclSuccess);
  CHECK(bytes == 0);  // CPU ranks hold none of a GPU
  CHECK(state_of(two.all[0]) == ncclInProgress);
  const auto sent = ncclSignal(0, 0, 0, 0, two.all[1], nullptr);
  CHECK((sent == ncclInProgress || sent == ncclSuccess));
  for (int r = 0; r < 2; ++r) CHECK(NcclRanks::end_of(two.all[r]) == ncclSuccess);
  // A revoke ends what waits.
  CHECK(ncclWaitSignal(1, &from, two.all[0], nullptr) == ncclInProgress);
  const auto revoked = ncclCommRevoke(two.all[0], NCCL_REVOKE_DEFAULT);
  CHECK((revoked == ncclInProgress || revoked == ncclSuccess));
  CHECK(NcclRanks::end_of(two.all[0]) != ncclInProgress);
  float data = 1;
  const auto later = ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, two.all[0], nullptr);
  CHECK((later == ncclInProgress || later == ncclInvalidUsage));
  CHECK(NcclRanks::end_of(two.all[0]) != ncclSuccess);
  for (ncclComm_t& comm : two.all.comms) {
    CHECK(ncclCommAbort(comm) == ncclSuccess);
    comm = nullptr;
  }
}

TEST_CASE("a creation with several ids does not block") {
  ncclUniqueId ids[2];
  for (auto& id : ids) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = not_blocking();
  ncclComm_t comms[2] = {};
  CHECK(ncclCommInitRankScalable(&comms[0], 2, 0, 2, ids, &config) == ncclInProgress);
  CHECK(state_of(comms[0]) == ncclInProgress);
  const auto second = ncclCommInitRankScalable(&comms[1], 2, 1, 2, ids, &config);
  CHECK((second == ncclInProgress || second == ncclSuccess));
  float data = 1, sums[2] = {};
  for (int r = 0; r < 2; ++r) {
    REQUIRE(NcclRanks::end_of(comms[r]) == ncclSuccess);
    const auto made = ncclAllReduce(&data, &sums[r], 1, ncclFloat, ncclSum, comms[r], nullptr);
    CHECK((made == ncclInProgress || made == ncclSuccess));
  }
  for (int r = 0; r < 2; ++r) {
    CHECK(NcclRanks::end_of(comms[r]) == ncclSuccess);
    CHECK(sums[r] == 2);
    CHECK(ncclCommDestroy(comms[r]) == ncclSuccess);
  }
}

TEST_CASE("calls that are made while others are in progress run in their order") {
  TwoRanks two;
  constexpr int calls = 50;
  std::vector<float> values[2];
  for (auto& of_rank : values) of_rank.assign(calls, 1);
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < calls; ++i) {
      float* const at = &values[r][std::size_t(i)];
      const auto made =
          ncclAllReduce(i == 0 ? at : at - 1, at, 1, ncclFloat, ncclSum, two.all[r], nullptr);
      CHECK((made == ncclInProgress || made == ncclSuccess));
    }
  }
  for (int r = 0; r < 2; ++r) REQUIRE(NcclRanks::end_of(two.all[r]) == ncclSuccess);
  float expected = 1;
  for (int i = 0; i < calls; ++i) {
    expected *= 2;
    CHECK(values[0][std::size_t(i)] == expected);
    CHECK(values[1][std::size_t(i)] == expected);
  }
}

TEST_CASE("splits, shrinks and growth do not block, and what they make does not either") {
  TwoRanks two;
  ncclComm_t parts[2] = {};
  const auto check = [&] {
    float data = 1, sums[2] = {};
    for (int r = 0; r < 2; ++r) {
      REQUIRE(parts[r] != nullptr);
      REQUIRE(NcclRanks::end_of(parts[r]) == ncclSuccess);
      CHECK(ncclAllReduce(&data, &sums[r], 1, ncclFloat, ncclSum, parts[r], nullptr) ==
            ncclInProgress);
    }
    for (int r = 0; r < 2; ++r) {
      CHECK(NcclRanks::end_of(parts[r]) == ncclSuccess);
      CHECK(sums[r] == 2);
      CHECK(ncclCommDestroy(parts[r]) == ncclSuccess);
    }
  };
  two.both([&](int r, ncclComm_t comm) {
    const auto made = ncclCommSplit(comm, 0, r, &parts[r], nullptr);
    if (r == 0) CHECK(state_of(parts[0]) == ncclInProgress);
    return made;
  });
  check();
  two.both([&](int r, ncclComm_t comm) {
    return ncclCommShrink(comm, nullptr, 0, &parts[r], nullptr, NCCL_SHRINK_DEFAULT);
  });
  check();
  ncclUniqueId id;
  REQUIRE(ncclCommGetUniqueId(two.all[0], &id) == ncclSuccess);
  ncclComm_t third = nullptr;
  CHECK(ncclCommGrow(nullptr, 3, &id, 2, &third, &two.config) == ncclInProgress);
  two.both([&](int r, ncclComm_t comm) {
    return ncclCommGrow(comm, 3, nullptr, -1, &parts[r], nullptr);
  });
  for (ncclComm_t comm : {parts[0], parts[1], third}) {
    CHECK(NcclRanks::end_of(comm) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
  }
}

TEST_CASE("windows, rest and the end of communicators that do not block") {
  TwoRanks two;
  std::vector<float> memory[2] = {std::vector<float>(1024), std::vector<float>(1024)};
  ncclWindow_t windows[2] = {};
  two.both([&](int r, ncclComm_t comm) {
    return ncclCommWindowRegister(comm, memory[r].data(), 4096, &windows[r], NCCL_WIN_DEFAULT);
  });
  REQUIRE((windows[0] != nullptr && windows[1] != nullptr));
  ncclWaitSignalDesc_t from{1, 1, 0, 0};
  CHECK(ncclWaitSignal(1, &from, two.all[0], nullptr) == ncclInProgress);
  const float five = 5;
  const auto put =
      ncclPutSignal(&five, 1, ncclFloat, 0, windows[1], 8, 0, 0, 0, two.all[1], nullptr);
  CHECK((put == ncclInProgress || put == ncclSuccess));
  CHECK(NcclRanks::end_of(two.all[0]) == ncclSuccess);
  CHECK(memory[0][2] == 5);
  for (const int r : {0, 1}) {  // without the other rank
    const auto ended = ncclCommWindowDeregister(two.all[r], windows[r]);
    CHECK((ended == ncclInProgress || ended == ncclSuccess));
    CHECK(NcclRanks::end_of(two.all[r]) == ncclSuccess);
  }
  two.both([](int, ncclComm_t comm) { return ncclCommSuspend(comm, NCCL_SUSPEND_MEM); });
  two.both([](int, ncclComm_t comm) { return ncclCommResume(comm); });
  two.both([](int, ncclComm_t comm) { return ncclCommFinalize(comm); });
}

TEST_CASE("a failure of a deferred call is the communicator's, until the next call") {
  TwoRanks two;
  float data = 1;
  // Checked at once: there is no such root.
  CHECK(ncclBroadcast(&data, &data, 1, ncclFloat, 7, two.all[0], nullptr) == ncclInvalidArgument);
  CHECK(last_error_has("rank 7"));
  CHECK(state_of(two.all[0]) == ncclSuccess);
  // Checked where it runs: there is no code for this type.
  const double none = 1;
  double sum = 0;
  CHECK(ncclAllReduce(&none, &sum, 1, ncclDouble, ncclSum, two.all[0], nullptr) == ncclInProgress);
  CHECK(ncclAllReduce(&none, &sum, 1, ncclDouble, ncclSum, two.all[1], nullptr) == ncclInProgress);
  for (int r = 0; r < 2; ++r) CHECK(NcclRanks::end_of(two.all[r]) == ncclInvalidUsage);
  two.both([&](int, ncclComm_t comm) {  // the first rank receives
    return ncclBroadcast(&data, &data, 1, ncclFloat, 1, comm, nullptr);
  });
}

TEST_CASE("a communicator that does not block can be derived from one that does") {
  const NcclRanks all{2};
  ncclConfig_t config = not_blocking();
  ncclComm_t parts[2] = {};
  CHECK(ncclCommSplit(all[0], 0, 0, &parts[0], &config) == ncclInProgress);
  std::thread second{[&] {  // whose own child blocks
    ncclConfig_t blocks = NCCL_CONFIG_INITIALIZER;
    CHECK(ncclCommSplit(all[1], 0, 0, &parts[1], &blocks) == ncclSuccess);
  }};
  second.join();
  CHECK(NcclRanks::end_of(parts[0]) == ncclSuccess);
  for (ncclComm_t part : parts) CHECK(ncclCommDestroy(part) == ncclSuccess);
}

TEST_CASE("what is in progress can be aborted, and ended behind") {
  {
    TwoRanks two;
    float data = 1, sum = 0;
    CHECK(ncclAllReduce(&data, &sum, 1, ncclFloat, ncclSum, two.all[0], nullptr) == ncclInProgress);
    for (ncclComm_t& comm : two.all.comms) {  // of which the second never makes the call
      CHECK(ncclCommAbort(comm) == ncclSuccess);
      comm = nullptr;
    }
  }
  TwoRanks two;
  const float data = 1;
  std::atomic<float> sums[2] = {0, 0};
  for (int r = 0; r < 2; ++r) {
    auto* const sum = reinterpret_cast<float*>(&sums[r]);
    CHECK(ncclAllReduce(&data, sum, 1, ncclFloat, ncclSum, two.all[r], nullptr) == ncclInProgress);
    CHECK(ncclCommDestroy(two.all[r]) == ncclSuccess);  // returns at once
    two.all.comms[std::size_t(r)] = nullptr;
  }
  while (sums[0] != 2 || sums[1] != 2) std::this_thread::yield();  // or this test's time is over
}

TEST_CASE("a shrink that aborts does not wait for calls in progress") {
  ncclConfig_t config = not_blocking();
  NcclRanks all{3, &config};
  float data = 1, sums[2] = {};
  int silent = 2;
  ncclComm_t parts[2] = {};
  for (const int r : {0, 1}) {  // the third rank never makes the call
    CHECK(ncclAllReduce(&data, &sums[r], 1, ncclFloat, ncclSum, all[r], nullptr) == ncclInProgress);
  }
  for (const int r : {0, 1}) {
    const auto shrunk = ncclCommShrink(all[r], &silent, 1, &parts[r], nullptr, NCCL_SHRINK_ABORT);
    CHECK((shrunk == ncclInProgress || shrunk == ncclSuccess));
  }
  for (const int r : {0, 1}) {
    REQUIRE(NcclRanks::end_of(parts[r]) == ncclSuccess);
    const auto made = ncclAllReduce(&data, &sums[r], 1, ncclFloat, ncclSum, parts[r], nullptr);
    CHECK((made == ncclInProgress || made == ncclSuccess));
  }
  for (const int r : {0, 1}) {
    CHECK(NcclRanks::end_of(parts[r]) == ncclSuccess);
    CHECK(sums[r] == 2);
    CHECK(ncclCommDestroy(parts[r]) == ncclSuccess);
  }
  for (ncclComm_t comm : all.comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
  all.comms.clear();
}

TEST_CASE("a creation in progress can be aborted") {
  ncclConfig_t config = not_blocking();
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  CHECK(ncclCommAbort(comm) == ncclInvalidArgument);
}

TEST_CASE("a process may exit while calls are in progress") {
  for (int turn = 0; turn < 5; ++turn) {
    const auto child = ::fork();
    if (child == 0) {
      TwoRanks two;
      static float data = 1, sum = 0;
      (void)ncclAllReduce(&data, &sum, 1, ncclFloat, ncclSum, two.all[0], nullptr);
      if (turn % 2 == 1) {
        for (const int r : {0, 1}) (void)ncclCommDestroy(two.all[r]);
      }
      two.all.comms.clear();
      std::exit(turn);
    }
    int status = 99;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == turn);
  }
}

TEST_CASE("the text of an error belongs to the thread") {
  int count = 0;
  CHECK(ncclCommCount(nullptr, &count) == ncclInvalidArgument);
  const char* const mine = ncclGetLastError(nullptr);
  const std::string before = mine;
  std::thread other{[] {
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    CHECK(last_error_has("ncclGroupEnd without ncclGroupStart"));
  }};
  other.join();
  CHECK(std::string{mine} == before);  // the same memory
  CHECK(std::string{ncclGetLastError(nullptr)} == before);
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == 23203);
  // Without a failure of its own, a thread has the last of the process.
  CHECK(last_error_has("ncclGroupEnd without ncclGroupStart"));
}
