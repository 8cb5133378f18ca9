// Host functions of NCCL's device interface: what ranks are and where their memory is. Kernels
// cannot use it, so what only they need is refused by name.
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "nccl/abi/config.hpp"
#include "nccl/abi/device_abi.hpp"
#include "nccl/api.hpp"
#include "nccl/windows.hpp"

namespace ccl::detail::nccl {
namespace {

ncclResult_t absent(const char* what) {
  return answer([&]() -> Result<void> {
    return fail(Errc::not_supported,
                fmt::format("ccl does not have {}; ask ncclCommQueryProperties before", what));
  });
}
constexpr const char* device_code = "NCCL's communicators for kernels (ncclDevComm)";
constexpr const char* multimem = "multicast addresses for kernels (multimem)";
constexpr const char* gin = "networking from kernels (GIN)";
constexpr const char* cft = "CFT, which needs Blackwell and CUDA 13.3";

/// Ranks of this host, if those of every host are as many and numbered one after the other.
int local_ranks(const Communicator& comm) {
  const int ranks = comm.ranks();
  int count = 1;
  while (count < ranks && comm.peer(count).host_hash == comm.peer(0).host_hash) ++count;
  if (ranks % count != 0) return 1;
  for (int r = 0; r < ranks; ++r) {
    const bool begins = r % count == 0;
    if (r > 0 && begins == (comm.peer(r).host_hash == comm.peer(r - 1).host_hash)) return 1;
  }
  return count;
}

ncclTeam_t team(ncclComm_t comm, ncclTeam_t (*of)(const Communicator&)) {
  ncclTeam_t made{};
  (void)answer([&]() -> Result<void> {
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(const auto ready, member->ready());
    made = of(ready);
    return {};
  });
  return made;
}
ncclTeam_t world(const Communicator& comm) {
  return {comm.ranks(), comm.rank(), 1};
}
ncclTeam_t local(const Communicator& comm) {
  const int size = local_ranks(comm);
  return {size, comm.rank() % size, 1};
}
ncclTeam_t rail(const Communicator& comm) {
  const int size = local_ranks(comm);
  return {comm.ranks() / size, comm.rank() / size, size};
}

/// Number of a team's rank, where this rank has the number `mine`.
int number_in(const ncclTeam_t& of, int rank, int mine) {
  return mine + (rank - of.rank) * of.stride;
}

/// Sizes of the structure in NCCL 2.29, 2.30, 2.31 and 2.32.
constexpr std::size_t first_size = offsetof(ncclCommProperties_t, ginType);

ncclCommProperties_t properties_of(const Member& member, const Communicator& comm) {
  ncclCommProperties_t all{};
  all.rank = comm.rank();
  all.nRanks = comm.ranks();
  all.cudaDev = all.nvmlDev = comm.device();
  all.nLsaTeams = comm.ranks() / local_ranks(comm);
  all.hostRmaSupport = all.nLsaTeams == 1;
  all.commHash = std::hash<std::string>{}(member.family());
  return all;
}

Result<void> query(ncclComm_t comm, ncclCommProperties_t* properties) {
  CCL_CHECK(check_given(properties, "props"));
  const std::size_t head = offsetof(ncclCommProperties_t, rank);
  if (!is_begun(*properties, first_size)) {
    return fail(Errc::invalid_usage,
                "props was not begun with NCCL_COMM_PROPERTIES_INITIALIZER; begin it so");
  }
  CCL_TRY(const bool checks, setting_flag("ENABLE_VERSION_CHECK"));
  if (checks && properties->version > NCCL_VERSION_CODE) {
    return fail(
        Errc::invalid_usage,
        fmt::format("props is of version {}, and this library has NCCL's interface {}; build "
                    "the program for that, or set NCCL_ENABLE_VERSION_CHECK=0",
                    properties->version, NCCL_VERSION_CODE));
  }
  CCL_TRY(const auto member, member_of(comm));
  CCL_TRY(const auto ready, member->ready());
  const auto all = properties_of(*member, ready);
  const std::size_t bytes = std::min(properties->size, sizeof all) - head;
  std::memcpy(reinterpret_cast<char*>(properties) + head,
              reinterpret_cast<const char*>(&all) + head, bytes);
  return {};
}

/// Address of a rank's part of a window.
ncclResult_t pointer(ncclWindow_t window, std::size_t offset, int rank, void** at) {
  return answer([&]() -> Result<void> {
    CCL_CHECK(check_given(at, "outPtr"));
    *at = nullptr;
    CCL_TRY(const auto registered, window_of(window));
    CCL_TRY(std::byte* const address, part_of(*registered, rank, offset, 0));
    *at = address;
    return {};
  });
}

/// Memory that each rank of a kernel's team is to have.
Result<void> require(ncclDevResourceRequirements_t* wants, std::size_t bytes, std::size_t align,
                     ncclDevResourceHandle_t* handle) {
  CCL_CHECK(check_given(wants, "outReq"));
  *wants = {};
  wants->bufferSize = bytes;
  wants->bufferAlign = align;
  wants->outBufferHandle = handle;
  return {};
}
Result<void> check_counts(int first, int second) {
  if (first >= 0 && second >= 0) return {};
  return fail(Errc::invalid_argument,
              fmt::format("the numbers are {} and {}; pass 0 or more", first, second));
}

}  // namespace
}  // namespace ccl::detail::nccl

using namespace ccl::detail::nccl;

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* properties) {
  return answer([&] { return query(comm, properties); });
}
ncclResult_t ncclDevCommCreate(ncclComm_t, const void*, void*) {
  return absent(device_code);
}
ncclResult_t ncclDevCommDestroy(ncclComm_t, const void*) {
  return absent(device_code);
}

ncclTeam_t ncclTeamWorld(ncclComm_t comm) {
  return team(comm, world);
}
ncclTeam_t ncclTeamLsa(ncclComm_t comm) {
  return team(comm, local);
}
ncclTeam_t ncclTeamRail(ncclComm_t comm) {
  return team(comm, rail);
}
ncclTeam_t ncclTeamCft(ncclComm_t, ncclCftTeamMode_t) {
  (void)absent(cft);
  return {};
}
ncclTeam_t ncclTeamCftMultimem(ncclComm_t) {
  (void)absent(cft);
  return {};
}
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t of, int rank) {
  return number_in(of, rank, ncclTeamWorld(comm).rank);
}
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t of, int rank) {
  return number_in(of, rank, ncclTeamLsa(comm).rank);
}

// A window lies within one host, so its ranks are those of its LSA team.
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, std::size_t offset, int rank, void** at) {
  return pointer(window, offset, rank, at);
}
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, std::size_t offset, int rank,
                                      void** at) {
  return pointer(window, offset, rank, at);
}
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t, std::size_t, void**) {
  return absent(multimem);
}
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t, std::size_t, ncclMultimemHandle_t, void**) {
  return absent(multimem);
}
ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t, std::size_t, ncclCftLeId_t*, std::size_t*) {
  return absent(cft);
}
ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t, std::size_t, int, ncclTeam_t, ncclCftLeId_t*,
                                    std::size_t*) {
  return absent(cft);
}
ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t, std::size_t, int, ncclCftLeId_t*, std::size_t*) {
  return absent(cft);
}

ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t of, int count,
                                             ncclLsaBarrierHandle_t* handle,
                                             ncclDevResourceRequirements_t* wants) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(handle, "outHandle"));
    CCL_CHECK(check_counts(count, of.nRanks));
    handle->nBarriers = count;
    const auto words = std::size_t(count) * (3 + std::size_t(of.nRanks));
    return require(wants, words * sizeof(std::uint32_t), sizeof(std::uint32_t), &handle->bufHandle);
  });
}
int ncclLLA2ACalcSlots(int elements, int element_bytes) {
  return elements * ((element_bytes + 7) / 8);
}
ncclResult_t ncclLLA2ACreateRequirement(int blocks, int slots, ncclLLA2AHandle_t* handle,
                                        ncclDevResourceRequirements_t* wants) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(handle, "outHandle"));
    CCL_CHECK(check_counts(blocks, slots));
    handle->nSlots = std::uint32_t(slots);
    constexpr std::size_t line = 16;  // bytes
    return require(wants, std::size_t(blocks) * (1 + 2 * std::size_t(slots)) * line, line,
                   &handle->bufHandle);
  });
}
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t, ncclTeam_t, int, void*,
                                             ncclDevResourceRequirements_t*) {
  return absent(gin);
}
ncclResult_t ncclGinOutboxCreateRequirement(int, int, void*, ncclDevResourceRequirements_t*) {
  return absent(gin);
}
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t, int, int, void*,
                                              ncclDevResourceRequirements_t*) {
  return absent(gin);
}

CCL_NCCL_ALSO_P(ncclCommQueryProperties);
CCL_NCCL_ALSO_P(ncclDevCommCreate);
CCL_NCCL_ALSO_P(ncclDevCommDestroy);
CCL_NCCL_ALSO_P(ncclTeamWorld);
CCL_NCCL_ALSO_P(ncclTeamLsa);
CCL_NCCL_ALSO_P(ncclTeamRail);
CCL_NCCL_ALSO_P(ncclTeamCft);
CCL_NCCL_ALSO_P(ncclTeamCftMultimem);
CCL_NCCL_ALSO_P(ncclTeamRankToWorld);
CCL_NCCL_ALSO_P(ncclTeamRankToLsa);
CCL_NCCL_ALSO_P(ncclGetLsaDevicePointer);
CCL_NCCL_ALSO_P(ncclGetPeerDevicePointer);
CCL_NCCL_ALSO_P(ncclGetLsaMultimemDevicePointer);
CCL_NCCL_ALSO_P(ncclGetMultimemDevicePointer);
CCL_NCCL_ALSO_P(ncclGetMultimemDeviceLeInfo);
CCL_NCCL_ALSO_P(ncclGetCftDeviceLeInfo);
CCL_NCCL_ALSO_P(ncclGetPeerDeviceLeInfo);
CCL_NCCL_ALSO_P(ncclLsaBarrierCreateRequirement);
CCL_NCCL_ALSO_P(ncclLLA2ACalcSlots);
CCL_NCCL_ALSO_P(ncclLLA2ACreateRequirement);
CCL_NCCL_ALSO_P(ncclGinBarrierCreateRequirement);
CCL_NCCL_ALSO_P(ncclGinOutboxCreateRequirement);
CCL_NCCL_ALSO_P(ncclGinInboxA2ACreateRequirement);
