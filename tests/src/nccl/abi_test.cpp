// NCCL's C interface in ccl's libnccl, on CPU ranks: whole programs, as they are written for NCCL.
#include "nccl/abi/abi.hpp"

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/one_thread.hpp"

using namespace ccl::test;

TEST_CASE("one thread has all ranks, in groups") {
  OneThread all;
  const int count = GENERATE(1, 1000, 70000);
  const auto in = each([&](int r) { return values(r, count * ranks); });
  const auto run = [&](int out_count, auto&& call) {
    auto out = each([&](int) { return Floats(std::size_t(out_count), -1); });
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      return call(in[std::size_t(r)].data(), out[std::size_t(r)].data(), comm);
    }) == ncclSuccess);
    return out;
  };
  const auto n = std::size_t(count);

  const auto reduced = run(count, [&](const float* a, float* b, ncclComm_t comm) {
    return ncclAllReduce(a, b, n, ncclFloat, ncclSum, comm, nullptr);
  });
  const auto averaged = run(count, [&](const float* a, float* b, ncclComm_t comm) {
    return ncclAllReduce(a, b, n, ncclFloat, ncclAvg, comm, nullptr);
  });
  const auto largest = run(count, [&](const float* a, float* b, ncclComm_t comm) {
    return ncclAllReduce(a, b, n, ncclFloat, ncclMax, comm, nullptr);
  });
  const auto at_root = run(count, [&](const float* a, float* b, ncclComm_t comm) {
    return ncclReduce(a, b, n, ncclFloat, ncclSum, 2, comm, nullptr);
  });
  const auto shares = run(count, [&](const float* a, float* b, ncclComm_t comm) {
    return ncclReduceScatter(a, b, n, ncclFloat, ncclSum, comm, nullptr);
  });
  const auto gathered = run(count * ranks, [&](const float* a, float* b, ncclComm_t comm) {
    return ncclAllGather(a, b, n, ncclFloat, comm, nullptr);
  });
  const auto sent = run(count, [&](const float* a, float* b, ncclComm_t comm) {
    return ncclBroadcast(a, b, n, ncclFloat, 1, comm, nullptr);
  });
  const auto swapped = run(count * ranks, [&](const float* a, float* b, ncclComm_t comm) {
    return ncclAlltoAll(a, b, n, ncclFloat, comm, nullptr);
  });
  const auto brought = run(count * ranks, [&](const float* a, float* b, ncclComm_t comm) {
    return ncclGather(a, b, n, ncclFloat, 0, comm, nullptr);
  });
  const auto dealt = run(count, [&](const float* a, float* b, ncclComm_t comm) {
    return ncclScatter(a, b, n, ncclFloat, 0, comm, nullptr);
  });
  long wrong = 0;
  for (int r = 0; r < ranks; ++r) {
    const auto at = std::size_t(r);
    for (int i = 0; i < count; ++i) {
      const auto e = std::size_t(i);
      const float sum = 6 * value(0, i);  // (1 + 2 + 3) of the first rank's
      wrong += reduced[at][e] != sum;
      wrong += averaged[at][e] != sum / 3;
      wrong += largest[at][e] != value(2, i);
      wrong += at_root[at][e] != (r == 2 ? sum : -1);
      wrong += shares[at][e] != 6 * value(0, r * count + i);
      wrong += sent[at][e] != value(1, i);
      wrong += dealt[at][e] != value(0, r * count + i);
      for (int from = 0; from < ranks; ++from) {
        const auto run_of = std::size_t(from * count + i);
        wrong += gathered[at][run_of] != value(from, i);
        wrong += swapped[at][run_of] != value(from, r * count + i);
        wrong += brought[at][run_of] != (r == 0 ? value(from, i) : -1);
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("messages of a group go at once, also beside collectives") {
  OneThread all;
  constexpr int count = 5000;
  const auto in = each([](int r) { return values(r, count); });
  auto from_left = each([](int) { return Floats(count); });
  auto sums = each([](int) { return Floats(count); });
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    const auto at = std::size_t(r);
    ncclResult_t done = ncclSend(in[at].data(), count, ncclFloat, (r + 1) % ranks, comm, nullptr);
    if (done == ncclSuccess) {
      done =
          ncclAllReduce(in[at].data(), sums[at].data(), count, ncclFloat, ncclSum, comm, nullptr);
    }
    if (done != ncclSuccess) return done;
    return ncclRecv(from_left[at].data(), count, ncclFloat, (r + 2) % ranks, comm, nullptr);
  }) == ncclSuccess);
  for (int r = 0; r < ranks; ++r) {
    CHECK(from_left[std::size_t(r)] == values((r + 2) % ranks, count));
    CHECK(sums[std::size_t(r)][16] == 6 * value(0, 16));
  }
}

TEST_CASE("a rank in each thread, two of which exchange a message") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<ncclResult_t> results(ranks, ncclNumResults);
  std::vector<int> got(ranks);
  const auto rank = [&](int r) {
    const auto at = std::size_t(r);
    ncclComm_t comm = nullptr;
    int count = 0, mine = 0, device = 0;
    const auto run = [&](ncclResult_t done) {
      if (results[at] == ncclNumResults && done != ncclSuccess) results[at] = done;
    };
    run(ncclCommInitRank(&comm, ranks, id, r));
    run(ncclCommCount(comm, &count));
    run(ncclCommUserRank(comm, &mine));
    run(ncclCommCuDevice(comm, &device));
    if (r < 2) {
      const int data = 40 + r;
      run(ncclGroupStart());
      run(ncclSend(&data, 1, ncclInt, 1 - r, comm, nullptr));
      run(ncclRecv(&got[at], 1, ncclInt, 1 - r, comm, nullptr));
      run(ncclGroupEnd());
    }
    if (count != ranks || mine != r || device != -1) run(ncclInternalError);
    void* handle = nullptr;
    run(ncclCommRegister(comm, &got[at], sizeof(int), &handle));
    run(ncclCommFinalize(comm));
    run(ncclCommDeregister(comm, handle));
    run(ncclCommDestroy(comm));
    if (results[at] == ncclNumResults) results[at] = ncclSuccess;
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(rank, r);
  for (auto& thread : threads) thread.join();
  CHECK(results == std::vector<ncclResult_t>(ranks, ncclSuccess));
  CHECK(got == std::vector<int>{41, 40, 0});
}

TEST_CASE("a scalar before the sum, of this process or of memory that is read later") {
  OneThread all;
  float scalars[ranks] = {1, 0.5f, 2};
  const auto in = each([](int r) { return values(r, 10); });
  for (const auto where : {ncclScalarHostImmediate, ncclScalarDevice}) {
    auto out = each([](int) { return Floats(10); });
    ncclRedOp_t ops[ranks];
    for (int r = 0; r < ranks; ++r) {
      REQUIRE(ncclRedOpCreatePreMulSum(&ops[r], &scalars[r], ncclFloat, where,
                                       all.comms[std::size_t(r)]) == ncclSuccess);
    }
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      const auto at = std::size_t(r);
      return ncclAllReduce(in[at].data(), out[at].data(), 10, ncclFloat, ops[r], comm, nullptr);
    }) == ncclSuccess);
    // The scalar would be read as another type than it is of.
    CHECK(ncclAllReduce(in[0].data(), out[0].data(), 1, ncclDouble, ops[0], all.comms[0],
                        nullptr) == ncclInvalidArgument);
    CHECK(std::string{ncclGetLastError(nullptr)}.find("was made for float, not for double") !=
          std::string::npos);
    // That of another communicator has another scalar.
    CHECK(ncclAllReduce(in[0].data(), out[0].data(), 1, ncclFloat, ops[1], all.comms[0], nullptr) ==
          ncclInvalidArgument);
    CHECK(std::string{ncclGetLastError(nullptr)}.find("made for this communicator") !=
          std::string::npos);
    for (int r = 0; r < ranks; ++r) {
      CHECK(out[std::size_t(r)][3] == value(0, 3) + value(1, 3) / 2 + value(2, 3) * 2);
      CHECK(ncclRedOpDestroy(ops[r], all.comms[std::size_t(r)]) == ncclSuccess);
      CHECK(ncclRedOpDestroy(ops[r], all.comms[std::size_t(r)]) == ncclInvalidArgument);
    }
  }
}

TEST_CASE("a simulated group runs nothing, and says how long it would take") {
  OneThread all;
  const int count = 1 << 20;
  Floats in(std::size_t(count), 1), out(std::size_t(count), -1);
  const auto us_of = [&](auto&& calls) {
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    REQUIRE(ncclGroupStart() == ncclSuccess);
    calls();
    REQUIRE(ncclGroupSimulateEnd(&info) == ncclSuccess);
    return info.estimatedTime;
  };
  const auto sum = [&](std::size_t n, ncclComm_t comm) {
    CHECK(ncclAllReduce(in.data(), out.data(), n, ncclFloat, ncclSum, comm, nullptr) ==
          ncclSuccess);
  };
  const float none = us_of([] {});
  const float small = us_of([&] { sum(1, all.comms[0]); });  // no other rank need do so
  const float large = us_of([&] { sum(count, all.comms[0]); });
  const float both = us_of([&] {
    sum(1, all.comms[0]);
    sum(count, all.comms[0]);
  });
  const float of_two = us_of([&] {  // at the same time
    sum(count, all.comms[0]);
    sum(1, all.comms[1]);
  });
  CHECK(none == 0);
  CHECK(small > 0);
  CHECK(large > small);
  CHECK(both == Approx(small + large));
  CHECK(of_two == large);
  const ncclComm_t comm = all.comms[2];
  const auto move = [&](auto&& call) { CHECK(us_of([&] { CHECK(call() == ncclSuccess); }) > 0); };
  const auto type = ncclFloat;
  move([&] { return ncclReduceScatter(in.data(), out.data(), 9, type, ncclMax, comm, nullptr); });
  move([&] { return ncclReduce(in.data(), out.data(), 9, type, ncclSum, 1, comm, nullptr); });
  move([&] { return ncclAllGather(in.data(), out.data(), 9, type, comm, nullptr); });
  move([&] { return ncclBroadcast(in.data(), out.data(), 9, type, 1, comm, nullptr); });
  move([&] { return ncclAlltoAll(in.data(), out.data(), 9, type, comm, nullptr); });
  move([&] { return ncclGather(in.data(), out.data(), 9, type, 1, comm, nullptr); });
  move([&] { return ncclScatter(in.data(), out.data(), 9, type, 1, comm, nullptr); });
  move([&] { return ncclSend(in.data(), 9, type, 1, comm, nullptr); });
  move([&] { return ncclRecv(in.data(), 9, type, 1, comm, nullptr); });
  CHECK(out == Floats(std::size_t(count), -1));

  ncclSimInfo_t inner = NCCL_SIM_INFO_INITIALIZER;
  inner.estimatedTime = 12;
  us_of([&] {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(ncclGroupSimulateEnd(&inner) == ncclSuccess);  // the group continues
  });
  CHECK(inner.estimatedTime == 12);
}

TEST_CASE("what cannot be so is refused, and says why") {
  OneThread all;
  float data[4] = {};
  const ncclComm_t comm = all.comms[0];
  const auto mentions = [](const char* words) {
    return std::string{ncclGetLastError(nullptr)}.find(words) != std::string::npos;
  };
  CHECK(ncclAllReduce(data, data, 4, ncclFloat, ncclSum, nullptr, nullptr) == ncclInvalidArgument);
  CHECK(mentions("the communicator is null"));
  CHECK(ncclAllReduce(data, data, 4, ncclDataType_t(12), ncclSum, comm, nullptr) ==
        ncclInvalidArgument);
  CHECK(mentions("there is no type 12"));
  CHECK(ncclAllReduce(data, data, 4, ncclFloat, ncclRedOp_t(9), comm, nullptr) ==
        ncclInvalidArgument);
  CHECK(mentions("there is no reduction 9"));
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(mentions("ncclGroupEnd without ncclGroupStart"));
  ncclConfig_t raw{};
  ncclComm_t none = comm;
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(ncclCommInitRankConfig(&none, 1, id, 0, &raw) == ncclInvalidArgument);
  CHECK(mentions("NCCL_CONFIG_INITIALIZER"));
  CHECK(none == nullptr);
  ncclConfig_t neither = NCCL_CONFIG_INITIALIZER;
  neither.blocking = 5;
  CHECK(ncclCommInitRankConfig(&none, 1, id, 0, &neither) == ncclInvalidArgument);
  CHECK(mentions("config.blocking is 5"));
  CHECK(ncclCommInitAll(&none, -1, nullptr) == ncclInvalidArgument);
  CHECK(mentions("ndev is -1"));
  CHECK(ncclCommInitAll(&none, 0, nullptr) == ncclSuccess);
  int moved_from = ranks, itself = 0, other = 1;
  CHECK(ncclCommShrink(comm, nullptr, 1, &none, nullptr, 0) == ncclInvalidArgument);
  CHECK(mentions("excludeRanksList is null for 1 ranks"));
  CHECK(ncclCommShrink(comm, &moved_from, 1, &none, nullptr, 0) == ncclInvalidArgument);
  CHECK(mentions("there is no rank 3 to exclude"));
  CHECK(ncclCommShrink(comm, &itself, 1, &none, nullptr, NCCL_SHRINK_ABORT) == ncclInvalidArgument);
  CHECK(mentions("rank 0 excludes itself"));
  CHECK(ncclCommShrink(comm, &other, 1, &none, nullptr, 2) == ncclInvalidArgument);
  CHECK(mentions("shrinkFlags are 2"));
  CHECK(ncclGroupSimulateEnd(nullptr) == ncclInvalidUsage);
  CHECK(mentions("ncclGroupSimulateEnd without ncclGroupStart"));
  ncclSimInfo_t info{};
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidArgument);
  CHECK(mentions("NCCL_SIM_INFO_INITIALIZER"));
  CHECK(ncclGroupEnd() == ncclInvalidUsage);  // it has ended

  // Nothing of a group runs that holds such a call.
  Floats sums(ranks, -1);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (std::size_t r = 0; r < ranks; ++r) {
    CHECK(ncclAllReduce(data, &sums[r], 1, ncclFloat, ncclSum, all.comms[r], nullptr) ==
          ncclSuccess);
  }
  CHECK(ncclSend(data, 1, ncclDataType_t(15), 0, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(sums == Floats(ranks, -1));
  CHECK(ncclSend(data, 1, ncclFloat, 0, comm, nullptr) == ncclInvalidUsage);
  CHECK(mentions("sends itself 1 messages and takes 0"));
  ncclComm_t never = nullptr;
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(ncclCommInitRank(&never, 2, id, 0) == ncclSuccess);
  CHECK(ncclSend(data, 1, ncclDataType_t(15), 0, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  ncclResult_t state = ncclInProgress;
  CHECK(ncclCommGetAsyncError(never, &state) == ncclSuccess);
  CHECK(state == ncclInvalidArgument);

  CHECK(ncclCommDestroy(all.comms[2]) == ncclSuccess);
  CHECK(ncclCommDestroy(all.comms[2]) == ncclInvalidArgument);
  CHECK(mentions("the communicator has ended"));
  all.comms[2] = nullptr;
}

TEST_CASE("memory, registrations, windows, the second names") {
  OneThread all;
  void* memory[ranks];
  ncclWindow_t windows[ranks];
  constexpr std::size_t bytes = 1 << 16;
  for (auto& one : memory) REQUIRE(ncclMemAlloc(&one, bytes) == ncclSuccess);
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommWindowRegister(comm, memory[r], bytes, &windows[r], NCCL_WIN_COLL_SYMMETRIC);
  }) == ncclSuccess);
  void* handle = nullptr;
  CHECK(ncclCommRegister(all.comms[0], memory[0], bytes, &handle) == ncclSuccess);
  CHECK(ncclCommDeregister(all.comms[1], handle) == ncclInvalidArgument);
  CHECK(std::string{ncclGetLastError(all.comms[1])}.find("is no registration of this "
                                                         "communicator") != std::string::npos);
  CHECK(ncclCommDeregister(all.comms[0], handle) == ncclSuccess);
  CHECK(ncclCommDeregister(all.comms[0], handle) == ncclInvalidArgument);
  CHECK(ncclCommDeregister(all.comms[0], nullptr) == ncclSuccess);
  CHECK(ncclCommRegister(all.comms[0], nullptr, bytes, &handle) == ncclInvalidArgument);
  CHECK(handle == nullptr);
  CHECK(ncclCommRegister(all.comms[0], memory[0], SIZE_MAX, &handle) == ncclInvalidArgument);
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommWindowDeregister(comm, windows[r]);
  }) == ncclSuccess);
  for (void* one : memory) CHECK(ncclMemFree(one) == ncclSuccess);
  CHECK(ncclMemFree(memory[0]) == ncclInvalidArgument);
  CHECK(ncclMemFree(&handle) == ncclInvalidArgument);
  CHECK(ncclMemFree(nullptr) == ncclSuccess);
  for (const std::size_t too_many : {SIZE_MAX, SIZE_MAX - 4000, SIZE_MAX / 2}) {
    CHECK(ncclMemAlloc(&memory[0], too_many) == ncclInvalidArgument);
    CHECK(memory[0] == nullptr);
  }
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == NCCL_VERSION_CODE);
  std::set<std::string> texts;
  for (int code = ncclSuccess; code <= ncclNumResults; ++code) {
    texts.insert(ncclGetErrorString(ncclResult_t(code)));
  }
  CHECK(texts.size() == ncclNumResults + 1);
  reload_log();
}
