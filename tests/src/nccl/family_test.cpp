// The end of a communicator whose ranks are processes.
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/nccl_ranks.hpp"
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl::test;

namespace {
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds at_most{30};  // for the end of a communicator: usually 5 s

/// Ends the communicator after `before(comm)`. Returns the exit status: 0 if all is well.
template <class Before>
int run_rank(const ncclUniqueId& id, int rank, Before before) {
  ncclComm_t comm = nullptr;
  if (ncclCommInitRank(&comm, 2, id, rank) != ncclSuccess) return 1;
  float data = 1, sum = 0;
  if (ncclAllReduce(&data, &sum, 1, ncclFloat, ncclSum, comm, nullptr) != ncclSuccess) return 2;
  if (sum != 2) return 3;
  if (const int status = before(comm); status != 0) return status;
  const auto begin = Clock::now();
  if (ncclCommDestroy(comm) != ncclSuccess) return 5;
  return Clock::now() - begin < at_most ? 0 : 6;
}
}  // namespace

TEST_CASE("a rank destroys its communicator without the others, which go on") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<pid_t> children;
  int gone[2];  // closed when rank 0 has destroyed its communicator: its exit waits for rank 1
  REQUIRE(::pipe(gone) == 0);
  for (const int rank : {0, 1}) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (rank == 0) {
        const int status = run_rank(id, 0, [](ncclComm_t) { return 0; });
        ::close(gone[1]);
        std::exit(status);
      }
      ::close(gone[1]);
      std::exit(run_rank(id, 1, [&](ncclComm_t comm) {
        pollfd other{gone[0], POLLIN, 0};
        if (::poll(&other, 1, 60'000) != 1) return 7;
        ncclResult_t state = ncclNumResults;
        const auto asked = ncclCommGetAsyncError(comm, &state);
        return asked == ncclSuccess && state == ncclSuccess ? 0 : 4;
      }));
    }
    children.push_back(child);
  }
  ::close(gone[0]);
  ::close(gone[1]);
  for (const pid_t child : children) {
    int status = 99;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_CASE("a rank may leave at once after the end of its communicator") {
  for (int turn = 0; turn < 10; ++turn) {
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    std::vector<pid_t> children;
    for (const int rank : {0, 1}) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(run_rank(id, rank, [](ncclComm_t) { return 0; }));
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = 99;
      CHECK(::waitpid(child, &status, 0) == child);
      CHECK(WEXITSTATUS(status) == 0);
    }
  }
}

namespace {
/// Ends a communicator whose calls do not block; rank 0 leaves at once, rank 1 comes later.
int run_rank_without_blocking(const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const auto made = ncclCommInitRankConfig(&comm, 2, id, rank, &config);
  if (made != ncclSuccess && made != ncclInProgress) return 1;
  if (NcclRanks::end_of(comm) != ncclSuccess) return 2;
  if (rank == 1) {
    std::this_thread::sleep_for(std::chrono::seconds{2});
    if (NcclRanks::end_of(comm) != ncclSuccess) return 3;  // the other rank is lost
  }
  const auto begin = Clock::now();
  if (ncclCommDestroy(comm) != ncclSuccess) return 4;
  return Clock::now() - begin < std::chrono::seconds{4} ? 0 : 5;  // one that blocks waits for 5 s
}
}  // namespace

TEST_CASE("a rank that does not block may return from main at once") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<pid_t> children;
  for (const int rank : {0, 1}) {
    const pid_t child = ::fork();
    if (child == 0) std::exit(run_rank_without_blocking(id, rank));
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 99;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_CASE("ends in a group wait at its end: other ranks may have another order") {
  ncclUniqueId ids[2];
  for (ncclUniqueId& id : ids) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  const auto run = [&](int rank) {
    ncclComm_t comms[2];
    for (const int i : {0, 1}) {
      if (ncclCommInitRank(&comms[i], 2, ids[i], rank) != ncclSuccess) return 1;
    }
    if (ncclGroupStart() != ncclSuccess) return 2;
    for (const int i : {rank, 1 - rank}) {
      if (ncclCommFinalize(comms[i]) != ncclSuccess) return 3;
    }
    if (ncclGroupEnd() != ncclSuccess) return 4;
    for (ncclComm_t comm : comms) {
      if (ncclCommDestroy(comm) != ncclSuccess) return 5;
    }
    return 0;
  };
  std::vector<pid_t> children;
  for (const int rank : {0, 1}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      std::exit(run(rank));
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 99;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_CASE("the exit of a process with a communicator is no failure of who needs nothing more") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<pid_t> children;
  for (const int rank : {0, 1, 2}) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    ncclComm_t comm = nullptr;
    if (ncclCommInitRank(&comm, 3, id, rank) != ncclSuccess) std::exit(1);
    for (int n = 0; n < 5; ++n) {
      float data = 1;
      if (ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comm, nullptr) != ncclSuccess ||
          data != 3) {
        std::exit(2);
      }
    }
    if (rank == 2) std::exit(0);
    std::this_thread::sleep_for(std::chrono::milliseconds{700 * (rank + 1)});
    ncclResult_t state = ncclNumResults;
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess || state != ncclSuccess) std::exit(3);
    const auto begin = Clock::now();
    if (ncclCommDestroy(comm) != ncclSuccess) std::exit(4);
    std::exit(Clock::now() - begin < std::chrono::seconds{3} ? 0 : 5);
  }
  for (const pid_t child : children) {
    int status = 99;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_CASE("a process that exits without an end of its communicator need not have crashed") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  int created[2];  // rank 0 has been created, too
  REQUIRE(::pipe(created) == 0);
  const pid_t child = ::fork();
  ncclComm_t comm = nullptr;
  const ncclResult_t made = ncclCommInitRank(&comm, 2, id, child == 0 ? 1 : 0);
  char one = 1;
  if (child == 0) std::exit(made == ncclSuccess && ::read(created[0], &one, 1) == 1 ? 0 : 1);
  CHECK(made == ncclSuccess);
  CHECK(::write(created[1], &one, 1) == 1);
  float data = 1;
  CHECK(ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comm, nullptr) == ncclRemoteError);
  CHECK(last_error_has("rank 1 on "));
  CHECK(last_error_has("has ended (its process exited without ending its communicator)"));
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  for (const int fd : created) ::close(fd);
  int status = 99;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("an exit within a group fails the calls that need its rank, which they name") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  const pid_t child = ::fork();
  ncclComm_t comm = nullptr;
  const ncclResult_t made = ncclCommInitRank(&comm, 2, id, child == 0 ? 1 : 0);
  float data = 1;
  const auto sum = [&] {
    return ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comm, nullptr);
  };
  const bool well = made == ncclSuccess && sum() == ncclSuccess && data == 2;
  if (child == 0) {
    if (!well || ncclGroupStart() != ncclSuccess || sum() != ncclSuccess) std::exit(1);
    std::exit(0);  // the group has launched nothing
  }
  CHECK(well);
  CHECK(sum() == ncclRemoteError);
  CHECK(last_error_has("rank 1 on "));
  CHECK(last_error_has("has ended (its process exited without ending its communicator)"));
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  int status = 99;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("ranks of one process end together") {
  for (int turn = 0; turn < 20; ++turn) {
    NcclRanks all{3};  // destroyed one after the other
  }
}

namespace {
/// Ends two communicators, rank 1 in the other order. Returns the exit status.
int end_in_another_order(const ncclUniqueId (&ids)[2], int rank) {
  ncclComm_t comms[2] = {};
  for (int i = 0; i < 2; ++i) {
    if (ncclCommInitRank(&comms[i], 2, ids[i], rank) != ncclSuccess) return 1;
  }
  const auto begin = Clock::now();
  for (const int i : {rank, 1 - rank}) {
    if (ncclCommDestroy(comms[i]) != ncclSuccess) return 2;
  }
  return Clock::now() - begin < std::chrono::seconds{4} ? 0 : 3;  // a rank that is late: 5 s
}
}  // namespace

TEST_CASE("ranks may end their communicators in different orders, and leave at once") {
  ncclUniqueId ids[2];
  for (auto& id : ids) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<pid_t> children;
  for (const int rank : {0, 1}) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(end_in_another_order(ids, rank));
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 99;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}
