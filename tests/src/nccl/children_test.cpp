// Communicators of libnccl that are made of others: splits and shrinks.
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "nccl/abi/abi.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/one_thread.hpp"
#include "support/processes.hpp"
#include <unistd.h>

using namespace ccl::test;

TEST_CASE("a split's ranks are a communicator of their own") {
  OneThread all;
  std::vector<ncclComm_t> parts(ranks);
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    const int color = r == 1 ? NCCL_SPLIT_NOCOLOR : 7;
    return ncclCommSplit(comm, color, -r, &parts[std::size_t(r)], nullptr);
  }) == ncclSuccess);
  CHECK(parts[1] == nullptr);  // which ends as the others do
  CHECK(ncclCommFinalize(parts[1]) == ncclSuccess);
  CHECK(ncclCommDestroy(parts[1]) == ncclSuccess);
  CHECK(ncclCommAbort(parts[1]) == ncclSuccess);
  int rank = -1, count = -1;
  CHECK(ncclCommUserRank(parts[0], &rank) == ncclSuccess);
  CHECK(ncclCommCount(parts[0], &count) == ncclSuccess);
  CHECK(rank == 1);  // by key
  CHECK(count == 2);
  CHECK(ncclCommDestroy(parts[0]) == ncclSuccess);
  CHECK(ncclCommDestroy(parts[2]) == ncclSuccess);
}

TEST_CASE("splits are made in the order of their group's calls") {
  OneThread all;
  const auto ranks_of = [](ncclComm_t comm) {
    int count = 0;
    CHECK(ncclCommCount(comm, &count) == ncclSuccess);
    return count;
  };
  const float data = 1;
  float sums[ranks] = {}, gathered[ranks][ranks] = {};
  ncclComm_t together[ranks], alone[ranks], two[ranks];
  // The first call of a kind is a rendezvous in the communicator too. If another rank made them in
  // another order, colors of different calls would be mixed.
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    CHECK(ncclAllReduce(&data, &sums[r], 1, ncclFloat, ncclSum, comm, nullptr) == ncclSuccess);
    CHECK(ncclCommSplit(comm, 0, 0, &together[r], nullptr) == ncclSuccess);
    CHECK(ncclAllGather(&data, gathered[r], 1, ncclFloat, comm, nullptr) == ncclSuccess);
    CHECK(ncclCommSplit(comm, r, 0, &alone[r], nullptr) == ncclSuccess);
    return ncclCommSplit(comm, r == 2 ? NCCL_SPLIT_NOCOLOR : 0, 0, &two[r], nullptr);
  }) == ncclSuccess);
  for (int r = 0; r < ranks; ++r) {
    CHECK(ranks_of(together[r]) == ranks);
    CHECK(ranks_of(alone[r]) == 1);
    if (r < 2) CHECK(ranks_of(two[r]) == 2);
    CHECK(sums[r] == ranks);
    CHECK(gathered[r][ranks - 1] == 1);
  }
  for (int r = 0; r < ranks; ++r) {
    for (ncclComm_t comm : {together[r], alone[r]}) CHECK(ncclCommDestroy(comm) == ncclSuccess);
    if (r < 2) CHECK(ncclCommDestroy(two[r]) == ncclSuccess);
  }
}

TEST_CASE("what is made without a configuration has its parent's") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "kept";
  ncclComm_t comm, same, other, shrunk;
  REQUIRE(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclSuccess);
  config.commName = "other";
  const std::string path = "/tmp/ccl.abi." + std::to_string(::getpid());
  {
    const ccl::test::Environment log{{{"CCL_DEBUG", "INFO"}, {"CCL_DEBUG_FILE", path}}};
    reload_log();
    CHECK(ncclCommSplit(comm, 0, 0, &same, nullptr) == ncclSuccess);
    CHECK(ncclCommSplit(same, 0, 0, &other, &config) == ncclSuccess);
    CHECK(ncclCommShrink(other, nullptr, 0, &shrunk, nullptr, 0) == ncclSuccess);
  }
  reload_log();
  std::vector<std::string> names;
  int complete = 0, started = 0;
  std::ifstream log{path};
  for (std::string line; std::getline(log, line);) {
    const bool of_child =
        line.find(" nranks 1 cudaDev -1 nvmlDev -1 busId 0 commId 0x") != line.npos &&
        line.find(" parent 0x") != line.npos &&
        line.find(" childCount 1 color 0 key 0 ") != line.npos;
    started += of_child && line.ends_with(" - Init START");
    complete += of_child && line.ends_with(" - Init COMPLETE") && started == complete + 1;
    const auto at = line.find("communicator "), end = line.find(" of 1 ranks is up");
    if (end != line.npos) names.push_back(line.substr(at + 13, end - at - 13));
  }
  ::unlink(path.c_str());
  CHECK(names == std::vector<std::string>{"kept", "other", "other"});
  CHECK(started == 3);  // NCCL's lines, which tools look for
  CHECK(complete == 3);
  for (ncclComm_t one : {comm, same, other, shrunk}) CHECK(ncclCommDestroy(one) == ncclSuccess);
}

TEST_CASE("what cannot be split yet leaves no communicator behind") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm, part = nullptr;
  REQUIRE(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
  CHECK(ncclCommSplit(comm, 0, 0, &part, nullptr) == ncclInvalidArgument);
  CHECK(part == nullptr);
  int excluded = 1;
  CHECK(ncclCommShrink(comm, &excluded, 1, &part, nullptr, 0) == ncclInvalidArgument);
  CHECK(part == nullptr);
  CHECK(ncclCommAbort(comm) == ncclSuccess);

  // Nor does one stay in progress whose call was not reached.
  OneThread all;
  ncclComm_t first = nullptr, second = nullptr;
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(ncclCommResume(all.comms[0]) == ncclSuccess);  // fails when it runs
  CHECK(ncclCommShrink(all.comms[0], &excluded, 1, &first, nullptr, 0) == ncclSuccess);
  CHECK(ncclCommSplit(all.comms[0], 0, 0, &second, nullptr) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  for (ncclComm_t one : {first, second}) {
    ncclResult_t state = ncclSuccess;
    CHECK(ncclCommGetAsyncError(one, &state) == ncclSuccess);
    CHECK(state == ncclInvalidUsage);
  }
}

TEST_CASE("a communicator shrinks to some of its ranks, and stays well") {
  OneThread all;
  std::vector<ncclComm_t> parts(ranks);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.shrinkShare = 1;
  for (int turn = 0; turn < 2; ++turn) {
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      int excluded[] = {1, 1};
      if (r == 1) return ncclSuccess;
      return ncclCommShrink(comm, excluded, 1 + r / 2, &parts[std::size_t(r)],
                            turn == 0 ? nullptr : &config, NCCL_SHRINK_DEFAULT);
    }) == ncclSuccess);
    int rank = -1, count = -1;
    CHECK(ncclCommUserRank(parts[2], &rank) == ncclSuccess);
    CHECK(ncclCommCount(parts[2], &count) == ncclSuccess);
    CHECK(rank == 1);
    CHECK(count == 2);
    Floats sums(ranks);
    const Floats data{1, 2, 4};
    const auto sum_of = [&](std::size_t r, ncclComm_t comm) {
      return ncclAllReduce(&data[r], &sums[r], 1, ncclFloat, ncclSum, comm, nullptr);
    };
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (const std::size_t r : {0u, 2u}) CHECK(sum_of(r, parts[r]) == ncclSuccess);
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    CHECK(sums == Floats{5, 0, 5});
    for (const std::size_t r : {0u, 2u}) CHECK(ncclCommDestroy(parts[r]) == ncclSuccess);
    REQUIRE(all.group([&](int r, ncclComm_t comm) { return sum_of(std::size_t(r), comm); }) ==
            ncclSuccess);
    CHECK(sums == Floats{7, 7, 7});
  }
  // Ranks without a part in it are counted like the others afterwards.
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommSplit(comm, 0, r, &parts[std::size_t(r)], nullptr);
  }) == ncclSuccess);
  for (ncclComm_t part : parts) CHECK(ncclCommDestroy(part) == ncclSuccess);
}

TEST_CASE(
    "ranks that cannot be excluded are refused at once, and no other rank of the group waits") {
  const OneThread all;
  float data[ranks] = {1, 1, 1};
  const auto sums = [&] {
    for (int r = 0; r < ranks; ++r) {
      CHECK(ncclAllReduce(&data[r], &data[r], 1, ncclFloat, ncclSum, all.comms[std::size_t(r)],
                          nullptr) == ncclSuccess);
    }
  };
  for (int excluded : {1, -1, ranks}) {
    ncclComm_t part = nullptr;
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommShrink(all.comms[1], &excluded, 1, &part, nullptr, NCCL_SHRINK_DEFAULT) ==
          ncclInvalidArgument);
    CHECK(part == nullptr);
    sums();
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(std::string{ncclGetLastError(nullptr)}.find("exclude") != std::string::npos);
  }
  REQUIRE(ncclGroupStart() == ncclSuccess);
  sums();
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  CHECK(data[0] == ranks);
}

TEST_CASE("a rank may end a child at once, which does not fail its creation on other ranks") {
  const bool aborts = GENERATE(true, false);
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start_process([&] {
      ncclComm_t comm = nullptr;
      if (ncclCommInitRank(&comm, ranks, id, rank) != ncclSuccess) return 1;
      for (int turn = 0; turn < 20; ++turn) {
        ncclComm_t part = nullptr;
        if (ncclCommSplit(comm, 0, rank, &part, nullptr) != ncclSuccess) return 2;
        if (!aborts && ncclCommRevoke(part, 0) != ncclSuccess) return 3;
        const auto ended = aborts ? ncclCommAbort(part) : ncclCommDestroy(part);
        if (ended != ncclSuccess) return 4;
      }
      return ncclCommDestroy(comm) == ncclSuccess ? 0 : 5;
    }));
  }
  CHECK(reap(pids, 60));
}

TEST_CASE("to shrink may end what waits for a rank that does not come") {
  OneThread all;
  float data = 1;
  ncclResult_t waited = ncclSuccess;
  std::thread waits{
      [&] { waited = ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, all.comms[0], nullptr); }};
  int stuck = 1;
  std::vector<ncclComm_t> parts(ranks);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (const std::size_t r : {0u, 2u}) {
    CHECK(ncclCommShrink(all.comms[r], &stuck, 1, &parts[r], nullptr, NCCL_SHRINK_ABORT) ==
          ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  waits.join();
  CHECK(waited == ncclRemoteError);
  float sums[2] = {};
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (const std::size_t r : {0u, 2u}) {
    CHECK(ncclAllReduce(&data, &sums[r / 2], 1, ncclFloat, ncclSum, parts[r], nullptr) ==
          ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  CHECK((sums[0] == 2 && sums[1] == 2));
  for (const std::size_t r : {0u, 2u}) {
    CHECK(ncclCommDestroy(parts[r]) == ncclSuccess);
    CHECK(ncclCommDestroy(all.comms[r]) == ncclSuccess);
  }
  CHECK(ncclCommAbort(all.comms[1]) == ncclSuccess);
  all.comms.clear();
}
