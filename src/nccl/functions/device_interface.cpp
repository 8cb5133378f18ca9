// Host functions of NCCL's device interface: communicators of kernels, what ranks are and where
// their memory is. Networking, multicast and CFT go to the real NCCL, or are refused by name.
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "nccl/abi/config.hpp"
#include "nccl/abi/device_layouts.hpp"
#include "nccl/api.hpp"
#include "nccl/device/kernel_comm.hpp"
#include "nccl/device/kernel_needs.hpp"
#include "nccl/fallback/rank.hpp"
#include "nccl/windows.hpp"

namespace ccl::detail::nccl {
namespace {

constexpr const char* multimem = "multicast addresses for kernels (multimem)";
constexpr const char* gin = "networking from kernels (GIN)";
constexpr const char* cft = "CFT, which needs Blackwell and CUDA 13.3";

cuda::std::unexpected<Error> absent(const char* what) {
  return fail(Errc::not_supported,
              fmt::format("ccl does not have {}; ask ncclCommQueryProperties before, or name a "
                          "libnccl.so.2 of NVIDIA with CCL_NCCL_FALLBACK on all ranks",
                          what));
}

/// Passes a call to the real NCCL, if `rank` is not null. Else it is refused.
template <class F, class... Args>
Result<void> by_real(const std::shared_ptr<const RealRank>& rank, F* RealNccl::*function,
                     const char* name, const char* what, Args... args) {
  if (rank == nullptr) return absent(what);
  return rank->call(rank->library().*function, name, args...);
}
Result<std::shared_ptr<RealRank>> real_of(ncclComm_t comm) {
  if (comm == nullptr) return nullptr;
  CCL_TRY(const auto member, member_of(comm));
  CCL_CHECK(member->ready());
  auto real = member->real();
  if (real != nullptr) CCL_CHECK(member->usable());
  return real;
}
/// Passes a call whose first argument is a communicator to the real NCCL.
template <class F, class... Args>
ncclResult_t of_comm(ncclComm_t comm, F* RealNccl::*function, const char* name, const char* what,
                     Args... args) {
  return answer([&]() -> Result<void> {
    CCL_TRY(const std::shared_ptr<const RealRank> real, real_of(comm));
    return by_real(real, function, name, what, real == nullptr ? nullptr : real->comm(), args...);
  });
}
/// Passes a call whose first argument is a window to the NCCL that made it.
template <class F, class... Args>
ncclResult_t of_window(ncclWindow_t window, F* RealNccl::*function, const char* name,
                       const char* what, Args... args) {
  return answer([&] { return by_real(maker_of(window), function, name, what, window, args...); });
}
/// Passes a call that names no communicator to the library, if there is one.
template <class F, class... Args>
ncclResult_t of_library(F* RealNccl::*function, const char* name, Args... args) {
  return answer([&]() -> Result<void> {
    CCL_TRY(const RealNccl* const library, real_nccl());
    if (library == nullptr || library->*function == nullptr) return absent(gin);
    return library->check((library->*function)(args...), name, nullptr);
  });
}

/// Team of the real NCCL, if the communicator has one that knows `by`, or else of ccl.
ncclTeam_t team(ncclComm_t comm, ncclTeam_t (*of)(const Communicator&),
                ncclTeam_t (*RealNccl::*by)(ncclComm_t) = nullptr) {
  ncclTeam_t made{};
  (void)answer([&]() -> Result<void> {
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(const auto ready, member->ready());
    const auto real = member->real();
    if (by != nullptr && real != nullptr && real->library().*by != nullptr) {
      CCL_CHECK(member->usable());
      made = (real->library().*by)(real->comm());
      return {};
    }
    if (of == nullptr) return absent(cft);
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
  all.deviceApiSupport = check_kernels_reach_all(comm).has_value();
  all.devCommRuntimeVersionSize = sizeof(DevComm231);
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

/// Address of a rank's part of a window. `by` and `name` are the function of the program.
ncclResult_t pointer(ncclWindow_t window, std::size_t offset, int rank, void** at,
                     decltype(&ncclGetPeerDevicePointer) RealNccl::*by, const char* name) {
  return answer([&]() -> Result<void> {
    if (const auto maker = maker_of(window)) {
      return maker->call(maker->library().*by, name, window, offset, rank, at);
    }
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
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto real, real_of(comm));
    if (real == nullptr || real->library().CommQueryProperties == nullptr) {
      return query(comm, properties);
    }
    return real->call(real->library().CommQueryProperties, "ncclCommQueryProperties", real->comm(),
                      properties);
  });
}
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void* wants, void* made) {
  return answer_in_group([&]() -> ccl::Result<void> {
    CCL_TRY(const auto real, real_of(comm));
    CCL_TRY(auto member, member_of(comm));
    Member& whose = *member;
    return Group::of_this_thread().submit(std::move(member), [=, &whose] {
      if (real == nullptr) return whose.make_kernel_comm(wants, made);
      return real->call(real->library().DevCommCreate, "ncclDevCommCreate", real->comm(), wants,
                        made);  // waits for the other ranks, too
    });
  });
}
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void* made) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_input(made, "devComm"));
    CCL_TRY(const auto real, real_of(comm));
    if (real != nullptr) {
      return real->call(real->library().DevCommDestroy, "ncclDevCommDestroy", real->comm(), made);
    }
    CCL_TRY(const auto member, member_of(comm));
    return member->drop_kernel_comm(made);
  });
}

ncclTeam_t ncclTeamWorld(ncclComm_t comm) {
  return team(comm, world);
}
ncclTeam_t ncclTeamLsa(ncclComm_t comm) {
  return team(comm, local, &RealNccl::TeamLsa);
}
ncclTeam_t ncclTeamRail(ncclComm_t comm) {
  return team(comm, rail, &RealNccl::TeamRail);
}
ncclTeam_t ncclTeamCft(ncclComm_t comm, ncclCftTeamMode_t mode) {
  ncclTeam_t made{};
  (void)answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto real, real_of(comm));
    if (real == nullptr || real->library().TeamCft == nullptr) return absent(cft);
    made = real->library().TeamCft(real->comm(), mode);
    return {};
  });
  return made;
}
ncclTeam_t ncclTeamCftMultimem(ncclComm_t comm) {
  return team(comm, nullptr, &RealNccl::TeamCftMultimem);
}
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t of, int rank) {
  return number_in(of, rank, ncclTeamWorld(comm).rank);
}
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t of, int rank) {
  return number_in(of, rank, ncclTeamLsa(comm).rank);
}

// A window of ccl lies within one host, so its ranks are those of its LSA team.
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, std::size_t offset, int rank, void** at) {
  return pointer(window, offset, rank, at, &RealNccl::GetLsaDevicePointer,
                 "ncclGetLsaDevicePointer");
}
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, std::size_t offset, int rank,
                                      void** at) {
  return pointer(window, offset, rank, at, &RealNccl::GetPeerDevicePointer,
                 "ncclGetPeerDevicePointer");
}
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, std::size_t offset, void** at) {
  return of_window(window, &RealNccl::GetLsaMultimemDevicePointer,
                   "ncclGetLsaMultimemDevicePointer", multimem, offset, at);
}
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, std::size_t offset,
                                          ncclMultimemHandle_t handle, void** at) {
  return of_window(window, &RealNccl::GetMultimemDevicePointer, "ncclGetMultimemDevicePointer",
                   multimem, offset, handle, at);
}
ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t window, std::size_t offset, ncclCftLeId_t* id,
                                         std::size_t* at) {
  return of_window(window, &RealNccl::GetMultimemDeviceLeInfo, "ncclGetMultimemDeviceLeInfo", cft,
                   offset, id, at);
}
ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t window, std::size_t offset, int rank,
                                    ncclTeam_t of, ncclCftLeId_t* id, std::size_t* at) {
  return of_window(window, &RealNccl::GetCftDeviceLeInfo, "ncclGetCftDeviceLeInfo", cft, offset,
                   rank, of, id, at);
}
ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t window, std::size_t offset, int rank,
                                     ncclCftLeId_t* id, std::size_t* at) {
  return of_window(window, &RealNccl::GetPeerDeviceLeInfo, "ncclGetPeerDeviceLeInfo", cft, offset,
                   rank, id, at);
}

ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t of, int count,
                                             ncclLsaBarrierHandle_t* handle,
                                             ncclDevResourceRequirements_t* wants) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(handle, "outHandle"));
    CCL_CHECK(check_counts(count, of.nRanks));
    handle->nBarriers = count;
    return require(wants, lsa_barrier_bytes(count, of.nRanks), sizeof(std::uint32_t),
                   &handle->bufHandle);
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
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t of, int count,
                                             void* handle, ncclDevResourceRequirements_t* wants) {
  return of_comm(comm, &RealNccl::GinBarrierCreateRequirement, "ncclGinBarrierCreateRequirement",
                 gin, of, count, handle, wants);
}
ncclResult_t ncclGinOutboxCreateRequirement(int blocks, int size_log2, void* handle,
                                            ncclDevResourceRequirements_t* wants) {
  return of_library(&RealNccl::GinOutboxCreateRequirement, "ncclGinOutboxCreateRequirement", blocks,
                    size_log2, handle, wants);
}
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t of, int blocks, int size_log2,
                                              void* handle, ncclDevResourceRequirements_t* wants) {
  return of_library(&RealNccl::GinInboxA2ACreateRequirement, "ncclGinInboxA2ACreateRequirement", of,
                    blocks, size_log2, handle, wants);
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
