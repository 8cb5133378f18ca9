// Host functions of NCCL's device interface.
#include <cstring>
#include <vector>

#include "nccl/abi/device_abi.hpp"
#include "support/environment.hpp"
#include "support/kernel_wants.hpp"
#include "support/nccl_ranks.hpp"

using namespace ccl::test;

namespace {

ncclCommProperties_t begun(std::size_t size = sizeof(ncclCommProperties_t)) {
  ncclCommProperties_t all;
  std::memset(&all, 0xee, sizeof all);
  all.size = size;
  all.magic = NCCL_API_MAGIC;
  all.version = NCCL_VERSION_CODE;
  return all;
}

}  // namespace

TEST_CASE("properties of a communicator, for callers of any version") {
  const NcclRanks all{3};
  auto whole = begun();
  REQUIRE(ncclCommQueryProperties(all[1], &whole) == ncclSuccess);
  CHECK(whole.rank == 1);
  CHECK(whole.nRanks == 3);
  CHECK(whole.cudaDev == -1);
  CHECK(whole.nLsaTeams == 1);
  CHECK(whole.hostRmaSupport);
  CHECK_FALSE(whole.deviceApiSupport);
  CHECK(whole.devCommRuntimeVersionSize == 248);
  CHECK_FALSE(whole.multimemSupport);
  CHECK_FALSE(whole.cftSupport);
  CHECK(whole.ginType == NCCL_GIN_TYPE_NONE);
  auto other = begun();
  REQUIRE(ncclCommQueryProperties(all[2], &other) == ncclSuccess);
  CHECK(other.commHash == whole.commHash);
  auto shorter = begun(40);
  REQUIRE(ncclCommQueryProperties(all[0], &shorter) == ncclSuccess);
  CHECK(shorter.nRanks == 3);
  CHECK(shorter.nLsaTeams == int(0xeeeeeeee));  // of a later version
  auto wrong = begun();
  wrong.magic = 1;
  CHECK(ncclCommQueryProperties(all[0], &wrong) == ncclInvalidUsage);
  auto newer = begun();
  newer.version = 29999;
  CHECK(ncclCommQueryProperties(all[0], &newer) == ncclInvalidUsage);
  CHECK(last_error_has("29999"));
  CHECK(last_error_has("NCCL_ENABLE_VERSION_CHECK=0"));
  {
    const Environment unchecked{"NCCL_ENABLE_VERSION_CHECK", "0"};
    CHECK(ncclCommQueryProperties(all[0], &newer) == ncclSuccess);
    CHECK(newer.nRanks == 3);
  }
  CHECK(ncclCommQueryProperties(all[0], nullptr) == ncclInvalidArgument);
}

TEST_CASE("teams of one host") {
  const NcclRanks all{3};
  const auto is = [](const ncclTeam_t& team, int ranks, int rank, int stride) {
    return team.nRanks == ranks && team.rank == rank && team.stride == stride;
  };
  CHECK(is(ncclTeamWorld(all[2]), 3, 2, 1));
  CHECK(is(ncclTeamLsa(all[2]), 3, 2, 1));
  CHECK(is(ncclTeamRail(all[2]), 1, 0, 3));
  CHECK(is(ncclTeamWorld(nullptr), 0, 0, 0));
  CHECK(is(ncclTeamCft(all[0], NCCL_CFT_TEAM_FLAT), 0, 0, 0));
  CHECK(last_error_has("CFT"));
  CHECK(is(ncclTeamCftMultimem(all[0]), 0, 0, 0));
  CHECK(ncclTeamRankToWorld(all[2], ncclTeamLsa(all[2]), 1) == 1);
  CHECK(ncclTeamRankToLsa(all[2], ncclTeamWorld(all[2]), 0) == 0);
}

TEST_CASE("addresses of a window, and what barriers need") {
  const NcclRanks all{2};
  std::vector<float> memory[2] = {std::vector<float>(1024), std::vector<float>(1024)};
  ncclWindow_t windows[2] = {};
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommWindowRegister(comm, memory[r].data(), 4096, &windows[r], NCCL_WIN_DEFAULT);
  }) == ncclSuccess);
  void* at = nullptr;
  CHECK(ncclGetLsaDevicePointer(windows[0], 8, 1, &at) == ncclSuccess);
  CHECK(at == &memory[1][2]);
  CHECK(ncclGetPeerDevicePointer(windows[1], 0, 0, &at) == ncclSuccess);
  CHECK(at == memory[0].data());
  CHECK(ncclGetPeerDevicePointer(windows[1], 0, 2, &at) == ncclInvalidArgument);
  CHECK(at == nullptr);
  CHECK(ncclGetPeerDevicePointer(windows[1], 4097, 0, &at) == ncclInvalidArgument);
  CHECK(ncclGetLsaDevicePointer(nullptr, 0, 0, &at) == ncclInvalidArgument);
  CHECK(ncclGetLsaDevicePointer(windows[0], 0, 0, nullptr) == ncclInvalidArgument);
  CHECK(all.group([&](int r, ncclComm_t comm) {
    return ncclCommWindowDeregister(comm, windows[r]);
  }) == ncclSuccess);
  CHECK(ncclGetLsaDevicePointer(windows[0], 0, 0, &at) == ncclInvalidArgument);
  CHECK(last_error_has("deregistered"));

  ncclDevResourceRequirements_t wants{};
  ncclLsaBarrierHandle_t barrier{};
  CHECK(ncclLsaBarrierCreateRequirement(ncclTeamLsa(all[0]), 4, &barrier, &wants) == ncclSuccess);
  CHECK(wants.bufferSize == (3 * 4 + 4 * 2) * 4);
  CHECK(wants.bufferAlign == 4);
  CHECK(wants.outBufferHandle == &barrier.bufHandle);
  CHECK(barrier.nBarriers == 4);
  ncclLLA2AHandle_t lines{};
  CHECK(ncclLLA2ACalcSlots(3, 12) == 6);
  CHECK(ncclLLA2ACreateRequirement(2, 6, &lines, &wants) == ncclSuccess);
  CHECK(wants.bufferSize == 2 * (1 + 2 * 6) * 16);
  CHECK(ncclLLA2ACreateRequirement(-1, 6, &lines, &wants) == ncclInvalidArgument);
  CHECK(ncclLLA2ACreateRequirement(1, 6, &lines, nullptr) == ncclInvalidArgument);
}

TEST_CASE("CPU ranks have no communicators of kernels") {
  const NcclRanks all{2};
  const auto wants = wants_of(NCCL_VERSION_CODE, usual_wants());
  ccl::detail::nccl::DevComm231 made{};
  CHECK(all.group([&](int, ncclComm_t comm) {
    return ncclDevCommCreate(comm, wants.data(), &made);
  }) == ncclInvalidUsage);
  CHECK(last_error_has("on CPUs"));
  CHECK(made.nRanks == 0);
  CHECK(ncclDevCommCreate(nullptr, wants.data(), &made) == ncclInvalidArgument);
  CHECK(ncclDevCommDestroy(all[0], &made) == ncclInvalidArgument);
  CHECK(last_error_has("ncclDevCommCreate"));
  CHECK(ncclDevCommDestroy(all[0], nullptr) == ncclInvalidArgument);
  float data = 1, sums[2] = {};
  CHECK(all.group([&](int r, ncclComm_t comm) {
    return ncclAllReduce(&data, &sums[r], 1, ncclFloat, ncclSum, comm, nullptr);
  }) == ncclSuccess);
}

TEST_CASE("what only kernels need is refused by name") {
  const NcclRanks all{1};
  int none = 0;
  void* at = nullptr;
  std::size_t offset = 0;
  ncclCftLeId_t id = 0;
  ncclDevResourceRequirements_t wants{};
  const ncclTeam_t team = ncclTeamWorld(all[0]);
  CHECK(ncclGetLsaMultimemDevicePointer(nullptr, 0, &at) == ncclInvalidUsage);
  CHECK(last_error_has("multimem"));
  CHECK(ncclGetMultimemDevicePointer(nullptr, 0, {}, &at) == ncclInvalidUsage);
  CHECK(ncclGetMultimemDeviceLeInfo(nullptr, 0, &id, &offset) == ncclInvalidUsage);
  CHECK(ncclGetCftDeviceLeInfo(nullptr, 0, 0, team, &id, &offset) == ncclInvalidUsage);
  CHECK(ncclGetPeerDeviceLeInfo(nullptr, 0, 0, &id, &offset) == ncclInvalidUsage);
  CHECK(last_error_has("CFT"));
  CHECK(ncclGinBarrierCreateRequirement(all[0], team, 1, &none, &wants) == ncclInvalidUsage);
  CHECK(last_error_has("GIN"));
  CHECK(ncclGinOutboxCreateRequirement(1, 1, &none, &wants) == ncclInvalidUsage);
  CHECK(ncclGinInboxA2ACreateRequirement(team, 1, 1, &none, &wants) == ncclInvalidUsage);
}
