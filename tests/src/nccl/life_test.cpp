// Begin and end of a communicator of libnccl: without blocking, by an abort, after it is revoked.
#include <string>
#include <thread>
#include <vector>

#include "nccl/abi/abi.hpp"
#include "support/catch.hpp"
#include "support/one_thread.hpp"

using namespace ccl::test;

TEST_CASE("creation that does not block says so until it is done") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = "quick";
  ncclComm_t comms[2];
  REQUIRE(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config) == ncclInProgress);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess);
  CHECK(state == ncclInProgress);
  int count = 0;
  CHECK(ncclCommCount(comms[0], &count) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(comms[0]) == ncclInvalidArgument);  // and leaves it as it is
  REQUIRE(ncclCommInitRank(&comms[1], 2, id, 1) == ncclSuccess);
  while (state == ncclInProgress) {
    std::this_thread::yield();
    REQUIRE(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess);
  }
  CHECK(state == ncclSuccess);
  CHECK(ncclCommCount(comms[0], &count) == ncclSuccess);
  CHECK(count == 2);
  for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("who aborts ends the others' waits") {
  OneThread all;
  float data = 1;
  ncclResult_t waited = ncclSuccess;
  std::thread waits{
      [&] { waited = ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, all.comms[0], nullptr); }};
  CHECK(ncclCommAbort(all.comms[1]) == ncclSuccess);
  waits.join();
  CHECK(waited == ncclRemoteError);
  CHECK(std::string{ncclGetLastError(nullptr)}.find("ncclCommAbort was called") !=
        std::string::npos);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(all.comms[0], &state) == ncclSuccess);
  CHECK(state == ncclRemoteError);
  for (const std::size_t r : {0u, 2u}) CHECK(ncclCommAbort(all.comms[r]) == ncclSuccess);
  all.comms.clear();
}

TEST_CASE("several ids, a broadcast in place, and what revoking ends") {
  ncclUniqueId ids[2];
  for (auto& id : ids) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comms[ranks];
  CHECK(ncclCommInitRankScalable(&comms[0], 1, 0, 2, ids, nullptr) == ncclInvalidArgument);
  CHECK(comms[0] == nullptr);
  int data[ranks] = {4, 5, 6};
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < ranks; ++r) {
    CHECK(ncclCommInitRankScalable(&comms[r], ranks, r, 2, ids, nullptr) == ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < ranks; ++r) {
    CHECK(ncclBcast(&data[r], 1, ncclInt, 2, comms[r], nullptr) == ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  for (const int got : data) CHECK(got == 6);

  CHECK(ncclCommRevoke(comms[0], 1) == ncclInvalidArgument);
  CHECK(ncclCommRevoke(comms[0], 0) == ncclSuccess);
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess) {  // until the others get the error or this test's time is over
    std::this_thread::yield();
    REQUIRE(ncclCommGetAsyncError(comms[1], &state) == ncclSuccess);
  }
  CHECK(state == ncclRemoteError);
  // Which no call has returned.
  CHECK(std::string{ncclGetLastError(comms[1])}.find("ncclCommRevoke was called") !=
        std::string::npos);
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("a communicator is finalized once, and destroyed after") {
  OneThread all;
  const auto finalize = [](int, ncclComm_t comm) { return ncclCommFinalize(comm); };
  REQUIRE(all.group(finalize) == ncclSuccess);
  CHECK(ncclCommFinalize(all.comms[0]) == ncclInvalidArgument);
  CHECK(std::string{ncclGetLastError(nullptr)}.find("finalized already") != std::string::npos);
  CHECK(all.group(finalize) == ncclInvalidArgument);
  ncclResult_t state = ncclInProgress;
  CHECK(ncclCommGetAsyncError(all.comms[0], &state) == ncclSuccess);
  CHECK(state == ncclSuccess);
}

TEST_CASE("an id is for one communicator, and the text says so") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  for (const auto wanted : {ncclSuccess, ncclRemoteError}) {
    ncclComm_t comms[2];
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int r = 0; r < 2; ++r) CHECK(ncclCommInitRank(&comms[r], 2, id, r) == ncclSuccess);
    CHECK(ncclGroupEnd() == wanted);
    const std::string text = ncclGetLastError(nullptr);
    INFO(text);
    CHECK((wanted == ncclSuccess || text.find("an id is for one") != text.npos));
    for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
  }
}

TEST_CASE("two that join as one rank are refused, also those of one process") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comms[2];
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (ncclComm_t& comm : comms) CHECK(ncclCommInitRank(&comm, 2, id, 0) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  const std::string text = ncclGetLastError(nullptr);
  INFO(text);
  CHECK(text.find("another has joined as rank 0 already") != text.npos);
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}
