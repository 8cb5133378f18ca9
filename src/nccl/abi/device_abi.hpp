#pragma once

// Host functions of NCCL's device interface, and the structures that they take. Members up to those
// that this library reads or writes; programs own the memory.
#include "nccl/abi/abi.hpp"

#pragma GCC visibility push(default)
extern "C" {

struct ncclTeam_t {
  int nRanks, rank, stride;
};
struct ncclMultimemHandle_t {
  void* mcBasePtr;
};
using ncclDevResourceHandle_t = std::uint32_t;
using ncclCftLeId_t = std::uint32_t;

enum ncclGinType_t : int { NCCL_GIN_TYPE_NONE };
enum ncclGinConnectionType_t : int { NCCL_GIN_CONNECTION_NONE };
enum ncclCftTeamMode_t : int { NCCL_CFT_TEAM_FLAT };

struct ncclDevResourceRequirements_t {
  ncclDevResourceRequirements_t* next;
  std::size_t bufferSize, bufferAlign;
  ncclDevResourceHandle_t* outBufferHandle;
  int ginSignalCount, ginCounterCount;
  std::uint32_t *outGinSignalStart, *outGinCounterStart;
};
struct ncclLsaBarrierHandle_t {
  ncclDevResourceHandle_t bufHandle;
  int nBarriers;
};
struct ncclLLA2AHandle_t {
  ncclDevResourceHandle_t bufHandle;
  std::uint32_t nSlots;
};

struct ncclCommProperties_t {
  std::size_t size;
  unsigned magic, version;
  int rank, nRanks, cudaDev, nvmlDev;
  bool deviceApiSupport, multimemSupport;
  ncclGinType_t ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  ncclGinType_t railedGinType;
  std::uint64_t commHash;
  int ginMinStride;
  ncclGinConnectionType_t ginConnectionType;
  bool ginSupport[64];
  std::size_t devCommRuntimeVersionSize;
  bool cftSupport, cftMulticastSupport, cftCountedSupport;
};

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* properties);
// Their structures depend on the version of the caller's device code.
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void* wants, void* made);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void* made);

ncclTeam_t ncclTeamWorld(ncclComm_t comm);
ncclTeam_t ncclTeamLsa(ncclComm_t comm);
ncclTeam_t ncclTeamRail(ncclComm_t comm);
ncclTeam_t ncclTeamCft(ncclComm_t comm, ncclCftTeamMode_t mode);
ncclTeam_t ncclTeamCftMultimem(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);

ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, std::size_t offset, int rank, void** at);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, std::size_t offset, int rank, void** at);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, std::size_t offset, void** at);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, std::size_t offset,
                                          ncclMultimemHandle_t multimem, void** at);
ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t window, std::size_t offset, ncclCftLeId_t* id,
                                         std::size_t* at);
ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t window, std::size_t offset, int rank,
                                    ncclTeam_t team, ncclCftLeId_t* id, std::size_t* at);
ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t window, std::size_t offset, int rank,
                                     ncclCftLeId_t* id, std::size_t* at);

ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int count,
                                             ncclLsaBarrierHandle_t* handle,
                                             ncclDevResourceRequirements_t* wants);
ncclResult_t ncclLLA2ACreateRequirement(int blocks, int slots, ncclLLA2AHandle_t* handle,
                                        ncclDevResourceRequirements_t* wants);
int ncclLLA2ACalcSlots(int elements, int element_bytes);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int count,
                                             void* handle, ncclDevResourceRequirements_t* wants);
ncclResult_t ncclGinOutboxCreateRequirement(int blocks, int size_log2, void* handle,
                                            ncclDevResourceRequirements_t* wants);
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t team, int blocks, int size_log2,
                                              void* handle, ncclDevResourceRequirements_t* wants);
}
#pragma GCC visibility pop

static_assert(sizeof(ncclTeam_t) == 12);
static_assert(sizeof(ncclDevResourceRequirements_t) == 56);
static_assert(offsetof(ncclCommProperties_t, ginType) == 36);
static_assert(offsetof(ncclCommProperties_t, commHash) == 56);
static_assert(offsetof(ncclCommProperties_t, ginSupport) == 72);
