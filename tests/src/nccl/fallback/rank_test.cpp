// What ccl cannot do, by the library that CCL_NCCL_FALLBACK names.
#include <cstdint>
#include <string>
#include <vector>

#include "nccl/abi/device_abi.hpp"
#include "support/environment.hpp"
#include "support/nccl_fallback.hpp"
#include "support/nccl_ranks.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl::test;

namespace {
constexpr const char* library = CCL_TEST_FALLBACK;
}  // namespace

TEST_CASE("windows, signals and the interface for kernels are those of the real NCCL") {
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  const NcclRanks all{2};
  std::vector<ncclWindow_t> windows(2);
  char memory[2][64] = {};
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommWindowRegister(comm, memory[r], 64, &windows[std::size_t(r)], NCCL_WIN_GIN_ONLY);
  }) == ncclSuccess);
  REQUIRE(made_by(library, "windows") == 2);
  void* at = nullptr;
  CHECK(ncclWinGetUserPtr(all[1], windows[1], &at) == ncclSuccess);
  CHECK(at == memory[1]);
  CHECK(ncclGetLsaDevicePointer(windows[0], 8, 1, &at) == ncclSuccess);
  CHECK(at == memory[0] + 9);
  CHECK(ncclPutSignal(memory, 1, ncclInt8, 0, windows[1], 0, 0, 0, 0, all[1], nullptr) ==
        ncclSuccess);
  CHECK(ncclSignal(1, 0, 0, 0, all[0], nullptr) == ncclSuccess);
  ncclWaitSignalDesc_t waits[2] = {{2, 1, 0, 0}, {3, 1, 0, 0}};
  CHECK(ncclWaitSignal(2, waits, all[0], nullptr) == ncclSuccess);
  CHECK((made_by(library, "puts") == 1 && made_by(library, "signals") == 1 &&
         made_by(library, "waits") == 5));
  ncclCommProperties_t properties{};
  CHECK(ncclCommQueryProperties(all[0], &properties) == ncclSuccess);
  CHECK(properties.deviceApiSupport);
  CHECK(ncclTeamLsa(all[1]).stride == 17);
  CHECK(ncclTeamRail(all[1]).nRanks == 1);  // of ccl, because that library has none
  int wants = 0, device = 0;
  int both[2] = {};
  wants = 7;  // which all ranks wait for
  CHECK(all.group([&](int r, ncclComm_t comm) {
    return ncclDevCommCreate(comm, &wants, &both[r]);
  }) == ncclSuccess);
  CHECK((both[0] == 100 && both[1] == 101));
  wants = 0;
  CHECK(ncclDevCommCreate(all[1], &wants, &device) == ncclSuccess);
  CHECK(device == 101);
  CHECK(ncclDevCommDestroy(all[1], &device) == ncclSuccess);
  CHECK(ncclDevCommCreate(all[1], nullptr, &device) == ncclInvalidArgument);
  CHECK(last_error_has("ncclDevCommCreate of the NCCL that CCL_NCCL_FALLBACK names failed"));
  CHECK(last_error_has("as the test wishes"));
  CHECK(ncclGetLsaMultimemDevicePointer(windows[0], 0, &at) == ncclInvalidUsage);
  CHECK(last_error_has("neither ccl nor the NCCL 22903"));
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommWindowDeregister(comm, windows[std::size_t(r)]);
  }) == ncclSuccess);
  CHECK(made_by(library, "windows") == 0);
}

TEST_CASE("if the library fails or hangs on one rank, none falls back") {
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  const Environment soon{"CCL_INIT_TIMEOUT", "1"};
  const Environment fails{GENERATE("FAKE_NCCL_FAILS", "FAKE_NCCL_HANGS"), "1"};
  const NcclRanks all{2};
  CHECK(made_by(library, "communicators") == 0);
  void* at = nullptr;
  CHECK(ncclDevCommCreate(all[0], &at, &at) == ncclInvalidUsage);
  CHECK(last_error_has("CCL_NCCL_FALLBACK"));
}

TEST_CASE("ranks that differ in CCL_NCCL_FALLBACK go on without") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  const auto child = ::fork();
  const Environment setting{"CCL_NCCL_FALLBACK", child == 0 ? library : "/nowhere/libnccl.so.2"};
  ncclComm_t comm = nullptr;
  float value = 1;
  bool good = ncclCommInitRank(&comm, 2, id, child == 0 ? 1 : 0) == ncclSuccess;
  good = good && ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr) == ncclSuccess;
  good = good && value == 2 && ncclDevCommCreate(comm, &value, &value) == ncclInvalidUsage;
  good = good && ncclCommDestroy(comm) == ncclSuccess;
  if (child == 0) ::_exit(good ? 0 : 1);
  int status = 1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(good);
}

TEST_CASE("the real NCCL gets the program's configuration, and its communicators do not block") {
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  const int limited = made_by(library, "limited"), named = made_by(library, "named");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.maxCTAs = 7;
  config.cgaClusterSize = 2;
  std::string net = "Socket", name = "trainer";
  config.netName = net.data();
  config.commName = name.data();
  const NcclRanks all{2, &config};
  net = name = "lost";  // the texts are the program's
  CHECK(made_by(library, "limited") == limited + 2);
  CHECK(made_by(library, "named") == named + 2);
  std::vector<ncclComm_t> parts(2);
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommSplit(comm, 0, r, &parts[std::size_t(r)], nullptr);  // as the parent
  }) == ncclSuccess);
  CHECK(made_by(library, "limited") == limited + 4);
  CHECK(made_by(library, "named") == named + 4);
  for (ncclComm_t part : parts) CHECK(ncclCommDestroy(part) == ncclSuccess);
  const NcclRanks plain{2};
  CHECK(made_by(library, "communicators") == 4);
  CHECK(made_by(library, "limited") == limited + 4);
}

TEST_CASE("the real NCCL's communicators are suspended, and resumed, with ccl's") {
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  const NcclRanks all{2};
  const auto each = [&](auto&& call) {
    return all.group([&](int, ncclComm_t comm) { return call(comm); });
  };
  const auto suspend = [](ncclComm_t comm) { return ncclCommSuspend(comm, NCCL_SUSPEND_MEM); };
  REQUIRE(each(suspend) == ncclSuccess);
  CHECK(made_by(library, "suspended") == 2);
  REQUIRE(each(ncclCommResume) == ncclSuccess);
  CHECK(made_by(library, "suspended") == 0);
  REQUIRE(each(suspend) == ncclSuccess);
  {
    // One rank that fails keeps all at rest, and the others are not resumed twice.
    const Environment fails{"FAKE_NCCL_WAKES_NOT", "1"};
    CHECK(each(ncclCommResume) == ncclSystemError);
    CHECK(made_by(library, "suspended") == 1);
    for (ncclComm_t comm : all.comms) {
      std::uint64_t rests = 0;
      REQUIRE(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &rests) == ncclSuccess);
      CHECK(rests == 1);
    }
  }
  REQUIRE(each(ncclCommResume) == ncclSuccess);
  CHECK(made_by(library, "suspended") == 0);
  const Environment fails{"FAKE_NCCL_RESTS_NOT", "1"};
  REQUIRE(each(suspend) == ncclSuccess);  // with a warning
  REQUIRE(each(ncclCommResume) == ncclSuccess);
  CHECK(made_by(library, "suspended") == 2);  // it was not asked to resume
}

TEST_CASE("the real NCCL gets no calls of a communicator that is suspended or revoked") {
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  const NcclRanks all{2};
  const bool revoked = GENERATE(false, true);
  if (revoked) {
    for (ncclComm_t comm : all.comms) {
      REQUIRE(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) == ncclSuccess);
    }
  } else {
    REQUIRE(all.group([](int, ncclComm_t comm) {
      return ncclCommSuspend(comm, NCCL_SUSPEND_MEM);
    }) == ncclSuccess);
  }
  const int puts = made_by(library, "puts"), windows = made_by(library, "windows");
  int data = 0;
  ncclWindow_t window = nullptr;
  ncclWaitSignalDesc_t wait{1, 0, 0, 0};
  ncclCommProperties_t properties{};
  const auto refused = [&](ncclResult_t code) {
    CHECK(code == ncclInvalidUsage);
    CHECK(last_error_has(revoked ? "ncclCommRevoke was called" : "call ncclCommResume before"));
  };
  refused(ncclCommWindowRegister(all[0], &data, sizeof data, &window, 0));
  refused(ncclPutSignal(&data, 1, ncclInt, 1, window, 0, 0, 0, 0, all[0], nullptr));
  refused(ncclSignal(1, 0, 0, 0, all[0], nullptr));
  refused(ncclWaitSignal(1, &wait, all[0], nullptr));
  refused(ncclDevCommCreate(all[0], &data, &data));
  refused(ncclCommQueryProperties(all[0], &properties));
  CHECK(ncclTeamLsa(all[0]).nRanks == 0);
  CHECK((made_by(library, "puts") == puts && made_by(library, "windows") == windows));
}

TEST_CASE("a revoke ends the real NCCL's communicators, whose kernels would wait on") {
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  const NcclRanks all{2};
  REQUIRE(made_by(library, "communicators") == 2);
  REQUIRE(ncclCommRevoke(all[0], NCCL_REVOKE_DEFAULT) == ncclSuccess);
  CHECK(made_by(library, "communicators") == 1);
  REQUIRE(ncclCommRevoke(all[1], NCCL_REVOKE_DEFAULT) == ncclSuccess);
  CHECK(made_by(library, "communicators") == 0);
  const double in = 1;
  double out = 0;
  CHECK(ncclAllReduce(&in, &out, 1, ncclFloat64, ncclSum, all[0], nullptr) == ncclInvalidUsage);
}
