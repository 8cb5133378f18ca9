// Windows, and NCCL's one-sided operations on them.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "support/environment.hpp"
#include "support/nccl_ranks.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl::test;

namespace {

constexpr int ranks = 3;
constexpr std::size_t bytes = 1 << 16;
constexpr std::size_t floats = bytes / sizeof(float);

/// A window on all ranks.
struct Windows {
  explicit Windows(const NcclRanks& of, std::size_t size = bytes) : all{of} {
    memory.resize(std::size_t(of.count()));
    windows.resize(memory.size());
    for (auto& one : memory) {
      REQUIRE(ncclMemAlloc(&one, size) == ncclSuccess);
      std::memset(one, 0, size);
    }
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      return ncclCommWindowRegister(comm, memory[std::size_t(r)], size, &windows[std::size_t(r)],
                                    NCCL_WIN_COLL_SYMMETRIC);
    }) == ncclSuccess);
    for (ncclWindow_t window : windows) REQUIRE(window != nullptr);
  }
  ~Windows() {
    CHECK(all.group([&](int r, ncclComm_t comm) {
      return ncclCommWindowDeregister(comm, windows[std::size_t(r)]);
    }) == ncclSuccess);
    for (void* one : memory) CHECK(ncclMemFree(one) == ncclSuccess);
  }
  const float* data(int r) const { return static_cast<const float*>(memory[std::size_t(r)]); }

  const NcclRanks& all;
  std::vector<void*> memory;
  std::vector<ncclWindow_t> windows;
};

}  // namespace

TEST_CASE("puts go around a ring, and signals say when they are there") {
  const NcclRanks all{ranks};
  const Windows windows{all};
  constexpr int rounds = 20;
  for (int round = 1; round <= rounds; ++round) {
    std::vector<std::vector<float>> sent;
    for (int r = 0; r < ranks; ++r) sent.emplace_back(floats / 2, float(round * 10 + r));
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      const auto at = std::size_t(r);
      const int right = (r + 1) % ranks;
      const auto put = ncclPutSignal(sent[at].data(), floats / 2, ncclFloat, right,
                                     windows.windows[at], bytes / 2, 0, 0, 0, comm, nullptr);
      if (put != ncclSuccess) return put;
      ncclWaitSignalDesc_t from{1, (r + 2) % ranks, 0, 0};
      return ncclWaitSignal(1, &from, comm, nullptr);
    }) == ncclSuccess);
    for (int r = 0; r < ranks; ++r) {
      CHECK(windows.data(r)[0] == 0);  // before the offset
      CHECK(windows.data(r)[floats / 2] == float(round * 10 + (r + 2) % ranks));
      CHECK(windows.data(r)[floats - 1] == float(round * 10 + (r + 2) % ranks));
    }
  }
}

TEST_CASE("signals are counted, and taken by waits") {
  const NcclRanks all{2};
  const Windows windows{all};
  for (int i = 0; i < 3; ++i) {
    REQUIRE(ncclSignal(1, 0, 0, 0, all[0], nullptr) == ncclSuccess);
    REQUIRE(ncclSignal(1, 0, 0, 0, all[1], nullptr) == ncclSuccess);  // to itself
  }
  ncclWaitSignalDesc_t both[] = {{2, 0, 0, 0}, {1, 1, 0, 0}};
  REQUIRE(ncclWaitSignal(2, both, all[1], nullptr) == ncclSuccess);
  both[0].opCnt = 1;
  both[1].opCnt = 2;
  REQUIRE(ncclWaitSignal(2, both, all[1], nullptr) == ncclSuccess);
  // None is left: a further wait would last for ever.
  const Environment limit{"CCL_TIMEOUT", "0.2"};
  CHECK(ncclWaitSignal(1, both, all[1], nullptr) == ncclRemoteError);
  CHECK(last_error_has("0 of 1 signals came from rank 0"));
}

TEST_CASE("a wait for signals ends when the communicator is aborted") {
  NcclRanks all{2};
  auto windows = std::make_unique<Windows>(all);
  ncclResult_t waited = ncclSuccess;
  std::thread waits{[&] {
    ncclWaitSignalDesc_t from{1, 0, 0, 0};
    waited = ncclWaitSignal(1, &from, all[1], nullptr);
  }};
  CHECK(ncclCommAbort(all[0]) == ncclSuccess);
  waits.join();
  CHECK(waited == ncclRemoteError);
  CHECK(ncclCommAbort(all[1]) == ncclSuccess);
  all.comms.clear();
  for (void* one : windows->memory) CHECK(ncclMemFree(one) == ncclSuccess);
  windows->memory.clear();
}

TEST_CASE("a wait for signals of a rank whose process has exited ends, and takes what it sent") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  const pid_t child = ::fork();
  const int rank = child == 0 ? 1 : 0;
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.rmaEagerInit = 1;  // without a window
  const bool well = ncclCommInitRankConfig(&comm, 2, id, rank, &config) == ncclSuccess;
  if (child == 0) std::exit(well && ncclSignal(0, 0, 0, 0, comm, nullptr) == ncclSuccess ? 0 : 1);
  CHECK(well);
  int status = 99;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  ncclWaitSignalDesc_t one{1, 1, 0, 0};
  CHECK(ncclWaitSignal(1, &one, comm, nullptr) == ncclSuccess);
  CHECK(ncclWaitSignal(1, &one, comm, nullptr) == ncclRemoteError);
  CHECK(last_error_has("rank 1 on "));
  CHECK(last_error_has("has ended (its process exited without ending its communicator)"));
  CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("several signals and contexts are apart") {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.numRmaCtx = 2;
  config.numRmaSig = 3;
  config.rmaEagerInit = 1;  // so that no window is needed
  const NcclRanks all{2, &config};
  REQUIRE(ncclSignal(1, 2, 1, 0, all[0], nullptr) == ncclSuccess);
  const Environment limit{"CCL_TIMEOUT", "0.1"};
  ncclWaitSignalDesc_t other{1, 0, 1, 1};
  CHECK(ncclWaitSignal(1, &other, all[1], nullptr) == ncclRemoteError);
  ncclWaitSignalDesc_t same{1, 0, 2, 1};
  CHECK(ncclWaitSignal(1, &same, all[1], nullptr) == ncclSuccess);
  CHECK(ncclSignal(1, 3, 0, 0, all[0], nullptr) == ncclInvalidArgument);
  CHECK(last_error_has("sigIdx is 3; there are 0 to 2"));
  CHECK(ncclSignal(1, 0, 2, 0, all[0], nullptr) == ncclInvalidArgument);
  CHECK(last_error_has("ctx is 2; there are 0 to 1"));
}

TEST_CASE("one-sided calls refuse what cannot be") {
  const NcclRanks all{2};
  CHECK(ncclSignal(1, 0, 0, 0, all[0], nullptr) == ncclInvalidUsage);
  CHECK(last_error_has("rmaEagerInit"));
  const Windows windows{all};
  float data = 1;
  const auto put = [&](const void* from, std::size_t count, int peer, ncclWindow_t window,
                       std::size_t offset, unsigned flags) {
    return ncclPutSignal(from, count, ncclFloat, peer, window, offset, 0, 0, flags, all[0],
                         nullptr);
  };
  CHECK(put(&data, 1, 1, nullptr, 0, 0) == ncclInvalidArgument);
  CHECK(last_error_has("the window is null"));
  CHECK(put(nullptr, 1, 1, windows.windows[0], 0, 0) == ncclInvalidArgument);
  CHECK(put(&data, 1, 2, windows.windows[0], 0, 0) == ncclInvalidArgument);
  CHECK(last_error_has("no rank 2"));
  CHECK(put(&data, 1, 1, windows.windows[0], bytes - 3, 0) == ncclInvalidArgument);
  CHECK(last_error_has("do not lie within"));
  CHECK(put(&data, SIZE_MAX / 2, 1, windows.windows[0], 0, 0) == ncclInvalidArgument);
  CHECK(put(&data, 1, 1, windows.windows[1], 0, 0) == ncclInvalidArgument);
  CHECK(last_error_has("belongs to another communicator"));
  CHECK(put(&data, 1, 1, windows.windows[0], 0, 1) == ncclInvalidArgument);
  CHECK(last_error_has("flags are 1"));
  CHECK(put(nullptr, 0, 1, windows.windows[0], bytes, 0) == ncclSuccess);  // only a signal
  CHECK(ncclWaitSignal(0, nullptr, all[0], nullptr) == ncclInvalidArgument);
  ncclWaitSignalDesc_t none{0, 1, 0, 0}, nobody{1, 2, 0, 0};
  CHECK(ncclWaitSignal(1, &none, all[0], nullptr) == ncclInvalidArgument);
  CHECK(last_error_has("opCnt is 0"));
  CHECK(ncclWaitSignal(1, &nobody, all[0], nullptr) == ncclInvalidArgument);
}

TEST_CASE("a window knows its memory, and its flags are checked") {
  const NcclRanks all{2};
  void* at = nullptr;
  {
    const Windows windows{all};
    CHECK(ncclWinGetUserPtr(all[0], windows.windows[0], &at) == ncclSuccess);
    CHECK(at == windows.memory[0]);
    CHECK(ncclWinGetUserPtr(all[0], nullptr, &at) == ncclInvalidArgument);
    CHECK(at == nullptr);
  }
  ncclWindow_t window = nullptr;
  CHECK(ncclCommWindowRegister(all[0], &at, 8, &window, NCCL_WIN_GIN_ONLY) == ncclInvalidUsage);
  CHECK(last_error_has("GIN"));
  CHECK(ncclCommWindowRegister(all[0], &at, 8, &window, 64) == ncclInvalidArgument);
  CHECK(ncclCommWindowDeregister(all[0], nullptr) == ncclSuccess);
}

TEST_CASE("ranks that do not share a host get no window, and go on") {
  std::vector<ncclComm_t> comms(2);
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<ncclResult_t> results(2, ncclNumResults);
  float sums[2] = {};
  const auto child = ::fork();  // another process: memory of its own cannot be mapped
  const int r = child == 0 ? 1 : 0;
  int failed = 0;
  const auto must = [&](ncclResult_t done) { failed += done != ncclSuccess; };
  {
    must(ncclCommInitRank(&comms[0], 2, id, r));
    std::vector<float> memory(1024);
    ncclWindow_t window = reinterpret_cast<ncclWindow_t>(&failed);
    must(ncclCommWindowRegister(comms[0], memory.data(), 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    failed += window != nullptr;
    const float one = 1;
    must(ncclAllReduce(&one, &sums[r], 1, ncclFloat, ncclSum, comms[0], nullptr));
    failed += sums[r] != 2;
    must(ncclCommWindowDeregister(comms[0], window));
    must(ncclCommDestroy(comms[0]));
  }
  if (child == 0) ::_exit(failed);
  int status = 1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(failed == 0);
}

TEST_CASE("processes of one host write into each other's windows of ncclMemAlloc") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  const pid_t child = ::fork();
  const int me = child == 0 ? 1 : 0, other = 1 - me;
  int failed = 0;
  const auto must = [&](bool well) { failed += well ? 0 : 1; };
  ncclComm_t comm = nullptr;
  must(ncclCommInitRank(&comm, 2, id, me) == ncclSuccess);
  // Each rank's part lies elsewhere in an allocation of its own size.
  constexpr std::size_t bytes = 8192;
  void* memory = nullptr;
  must(ncclMemAlloc(&memory, bytes * std::size_t(me + 2)) == ncclSuccess);
  auto* const part = static_cast<char*>(memory) + bytes * std::size_t(me);
  must(part[0] == 0 && part[bytes - 1] == 0);
  ncclWindow_t window = nullptr;
  must(ncclCommWindowRegister(comm, part, bytes, &window, NCCL_WIN_DEFAULT) == ncclSuccess);
  must(window != nullptr);
  void* mine = nullptr;
  must(ncclWinGetUserPtr(comm, window, &mine) == ncclSuccess && mine == part);
  const std::uint32_t sent = 4711u + unsigned(me);
  must(ncclPutSignal(&sent, 1, ncclUint32, other, window, bytes - sizeof sent, 0, 0, 0, comm,
                     nullptr) == ncclSuccess);
  ncclWaitSignalDesc_t one{1, other, 0, 0};
  must(ncclWaitSignal(1, &one, comm, nullptr) == ncclSuccess);
  std::uint32_t got = 0;
  std::memcpy(&got, part + bytes - sizeof got, sizeof got);
  must(got == 4711u + unsigned(other));
  must(ncclMemFree(memory) == ncclSuccess);  // the window keeps it
  must(ncclCommDestroy(comm) == ncclSuccess);
  if (child == 0) ::_exit(failed);
  int status = 1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(failed == 0);
}

TEST_CASE("a window is null on all ranks if the memory of one cannot be mapped by others") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  const pid_t child = ::fork();
  const int me = child == 0 ? 1 : 0;
  int failed = 0;
  const auto must = [&](bool well) { failed += well ? 0 : 1; };
  ncclComm_t comm = nullptr;
  must(ncclCommInitRank(&comm, 2, id, me) == ncclSuccess);
  constexpr std::size_t bytes = 4096;
  void* memory = nullptr;
  must(ncclMemAlloc(&memory, bytes) == ncclSuccess);
  std::vector<char> own(bytes);
  for (const int rank_of_own : {0, 1}) {
    ncclWindow_t window = reinterpret_cast<ncclWindow_t>(&failed);
    void* const mine = me == rank_of_own ? own.data() : memory;
    must(ncclCommWindowRegister(comm, mine, bytes, &window, NCCL_WIN_DEFAULT) == ncclSuccess);
    must(window == nullptr);
  }
  must(ncclMemFree(memory) == ncclSuccess);
  must(ncclCommDestroy(comm) == ncclSuccess);
  if (child == 0) ::_exit(failed);
  int status = 1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(failed == 0);
}
