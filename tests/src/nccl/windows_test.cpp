// Windows that a program leaves to their communicators.
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "support/environment.hpp"
#include "support/nccl_ranks.hpp"
#include <unistd.h>

using namespace ccl::test;

namespace {
constexpr std::size_t bytes = 1 << 16;

/// Memory of each rank, in a window.
struct Windows {
  std::vector<std::vector<char>> memory{2, std::vector<char>(bytes)};
  ncclWindow_t of[2] = {};
  explicit Windows(const NcclRanks& all) {
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      return ncclCommWindowRegister(comm, memory[std::size_t(r)].data(), bytes, &of[r],
                                    NCCL_WIN_DEFAULT);
    }) == ncclSuccess);
  }
  /// True if the window of rank `r` is registered.
  bool knows(int r, ncclComm_t asks) const {
    void* at = nullptr;
    return ncclWinGetUserPtr(asks, of[r], &at) == ncclSuccess;
  }
};
}  // namespace

TEST_CASE("windows that nobody deregisters end with their communicator") {
  const NcclRanks other{1};
  for (const bool aborts : {false, true}) {
    NcclRanks all{2};
    const Windows windows{all};
    for (ncclComm_t& comm : all.comms) {
      CHECK((aborts ? ncclCommAbort(comm) : ncclCommDestroy(comm)) == ncclSuccess);
      comm = nullptr;
    }
    for (const int r : {0, 1}) {
      CHECK(!windows.knows(r, other[0]));
      CHECK(last_error_has("its communicator has ended"));
      CHECK(ncclCommWindowDeregister(other[0], windows.of[r]) == ncclInvalidArgument);
    }
  }
}

TEST_CASE("ranks that one thread aborts in a group are all aborted before one is released") {
  const NcclRanks other{1};
  NcclRanks all{2};
  const Windows windows{all};
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (ncclComm_t comm : all.comms) {
    CHECK(ncclCommAbort(comm) == ncclSuccess);
    CHECK(ncclCommAbort(comm) == ncclInvalidArgument);
  }
  all.comms.clear();
  for (const int r : {0, 1}) CHECK(windows.knows(r, other[0]));
  CHECK(ncclGroupEnd() == ncclSuccess);
  for (const int r : {0, 1}) CHECK(!windows.knows(r, other[0]));
}

TEST_CASE("a window is deregistered without the other ranks, which keep theirs") {
  const NcclRanks all{2};
  const Windows windows{all};
  REQUIRE(ncclCommWindowDeregister(all[0], windows.of[0]) == ncclSuccess);
  CHECK(!windows.knows(0, all[0]));
  CHECK(windows.knows(1, all[1]));
  float data = 1, sums[2] = {};
  CHECK(all.group([&](int r, ncclComm_t comm) {
    return ncclAllReduce(&data, &sums[r], 1, ncclFloat, ncclSum, comm, nullptr);
  }) == ncclSuccess);
  CHECK(ncclCommWindowDeregister(all[1], windows.of[1]) == ncclSuccess);
}

TEST_CASE("a window is deregistered through its own communicator") {
  const NcclRanks all{2};
  const Windows windows{all};
  CHECK(ncclCommWindowDeregister(all[0], windows.of[1]) == ncclInvalidArgument);
  CHECK(last_error_has("belongs to another communicator"));
  CHECK(windows.knows(1, all[1]));
  CHECK(all.group([&](int r, ncclComm_t comm) {
    return ncclCommWindowDeregister(comm, windows.of[r]);
  }) == ncclSuccess);
  CHECK(ncclCommWindowDeregister(all[0], windows.of[0]) == ncclInvalidArgument);
}

TEST_CASE("a handle that ccl did not make is refused without a look at its address") {
  const NcclRanks all{1};
  const auto foreign = reinterpret_cast<ncclWindow_t>(std::uintptr_t{4096});
  void* at = nullptr;
  CHECK(ncclWinGetUserPtr(all[0], foreign, &at) == ncclInvalidArgument);
  CHECK(last_error_has("none of ccl's"));
  CHECK(ncclCommWindowDeregister(all[0], foreign) == ncclInvalidArgument);
}

TEST_CASE("a window of memory that NCCL itself refuses is named in the log") {
  const std::string path = "/tmp/ccl.aligned." + std::to_string(::getpid());
  std::vector<char> memory(3 * 4096);
  void* at = memory.data();
  std::size_t room = memory.size();
  char* const aligned = static_cast<char*>(std::align(4096, 4096 + 1, at, room));
  const auto log_of = [&](char* from) {
    {
      const Environment log{
          {{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_SUBSYS", "P2P"}, {"NCCL_DEBUG_FILE", path}}};
      ::ncclResetDebugInit();
      const NcclRanks all{1};
      ncclWindow_t window = nullptr;
      CHECK(ncclCommWindowRegister(all[0], from, 4096, &window, NCCL_WIN_DEFAULT) == ncclSuccess);
      CHECK(window != nullptr);
    }
    ::ncclResetDebugInit();
    std::ifstream file{path};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    ::unlink(path.c_str());
    return text;
  };
  CHECK(log_of(aligned).find("no multiple") == std::string::npos);
  CHECK(log_of(aligned + 1).find("which is no multiple of 4096 bytes") != std::string::npos);
}
