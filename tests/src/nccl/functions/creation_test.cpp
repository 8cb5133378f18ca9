// Ids of communicators.
#include <cstring>
#include <thread>

#include "support/environment.hpp"
#include "support/held_port.hpp"
#include "support/nccl_ranks.hpp"

using namespace ccl::test;

namespace {
/// A rank that gets its id by itself. Returns the sum that all ranks get, or -1.
float sum_of_rank(int rank) {
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess) return -1;
  ncclComm_t comm = nullptr;
  if (ncclCommInitRank(&comm, 2, id, rank) != ncclSuccess) return -1;
  const float data = float(rank + 1);
  float sum = -1;
  if (ncclAllReduce(&data, &sum, 1, ncclFloat, ncclSum, comm, nullptr) != ncclSuccess) return -1;
  if (ncclCommDestroy(comm) != ncclSuccess) return -1;
  return sum;
}
}  // namespace

TEST_CASE("with NCCL_COMM_ID each rank gets the common id by itself, for several communicators") {
  const HeldPort port;
  const Environment address{"NCCL_COMM_ID", "127.0.0.1:" + port.text()};
  ncclUniqueId ids[2];
  for (auto& id : ids) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(std::memcmp(&ids[0], &ids[1], sizeof ids[0]) == 0);
  for (int communicator = 0; communicator < 3; ++communicator) {
    float sums[2] = {};
    std::thread second{[&] { sums[1] = sum_of_rank(1); }};
    sums[0] = sum_of_rank(0);
    second.join();
    for (const float sum : sums) CHECK(sum == 3);
  }
}

TEST_CASE("without it each id is another one") {
  ncclUniqueId ids[2];
  for (auto& id : ids) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(std::memcmp(&ids[0], &ids[1], sizeof ids[0]) != 0);
}

TEST_CASE("an NCCL_COMM_ID that is no address is refused by its name") {
  const Environment address{"NCCL_COMM_ID", "here"};
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclInvalidArgument);
  CHECK(last_error_has("NCCL_COMM_ID"));
}
