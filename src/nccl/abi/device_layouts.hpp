#pragma once

// Structures of NCCL's device interface that kernels read. Their code was compiled with NVIDIA's
// headers, so the layout depends on the version of these.
#include "nccl/abi/device_abi.hpp"

/// Window, in GPU memory: `ncclWindow_t` is its address. Each version has appended members.
struct ncclWindow_vidmem {
  void* winHost;
  char* lsaFlatBase;  // memory of rank 0 of the LSA team
  int lsaRank, worldRank;
  std::uint32_t stride4G;  // distance of ranks' memory, in units of 2^32 bytes
  std::uint32_t mcOffset4K, ginOffset4K;
  std::uint32_t winFlags;  // since 2.32
  void* ginWins[4];
  void* ginMultiSegmentWins;  // since 2.30
  int numSegments;
  int cftFlatRank;           // since 2.31
  ncclCftLeId_t ucLeIdBase;  // since 2.32
};

/// Windows of a communicator, in GPU memory: kernels search it by address.
struct ncclDevCommWindowTable {
  struct Entry {
    std::uintptr_t base, size;
    ncclWindow_t window;
  } entries[32];
  ncclDevCommWindowTable* next;
};

namespace ccl::detail::nccl {

struct GinBarrierHandle {
  std::uint32_t signal0, unused;
};

/// ncclDevComm of NCCL 2.28.9 to 2.29.3.
struct DevComm228 {
  int rank, nRanks;
  std::uint32_t nRanks_rcp32;
  int lsaRank, lsaSize;
  std::uint32_t lsaSize_rcp32;
  ncclDevCommWindowTable* windowTable;
  ncclWindow_t resourceWindow;
  struct {
    void* winHost;
    char* lsaFlatBase;
    int lsaRank, worldRank;
    std::uint32_t stride4G, mcOffset4K, ginOffset4K;
    void* ginWins[4];
  } resourceWindow_inlined;
  ncclMultimemHandle_t lsaMultimem;
  ncclLsaBarrierHandle_t lsaBarrier;
  GinBarrierHandle railGinBarrier;
  std::uint8_t ginConnectionCount, ginNetDeviceTypes[4];
  void* ginHandles[4];
  std::uint32_t ginSignalBase;
  int ginSignalCount;
  std::uint32_t ginCounterBase;
  int ginCounterCount;
  std::uint64_t* ginSignalShadows;
};

/// ncclDevComm of NCCL 2.29.7.
struct DevComm229 : DevComm228 {
  std::uint32_t ginContextCount, ginContextBase;
  bool ginIsRailed;
  std::uint32_t* abortFlag;
};

/// ncclDevComm of NCCL 2.30. Only members for networks differ between its patches.
struct DevComm230 {
  unsigned magic, version;
  int rank, nRanks;
  std::uint32_t nRanks_rcp32;
  int lsaRank, lsaSize;
  std::uint32_t lsaSize_rcp32;
  ncclDevCommWindowTable* windowTable;
  ncclWindow_t resourceWindow;
  struct {
    void* unused;
    char* lsaFlatBase;
    int lsaRank, worldRank;
    std::uint32_t stride4G, mcOffset4K;
    char reserved[32];
  } resourceWindow_inlined;
  GinBarrierHandle hybridWorldGinBarrier;
  ncclMultimemHandle_t lsaMultimem;
  ncclLsaBarrierHandle_t lsaBarrier;
  GinBarrierHandle railGinBarrier;
  std::uint8_t ginConnectionCount, ginNetDeviceTypes[4];
  void* ginHandles[4];
  int ginSignalCount, ginCounterCount;
  std::uint64_t* ginSignalShadows;
  std::uint32_t ginContextCount;
  bool ginConnectionsRailed, ginStrongLegacySignals, ginContextsRailed;
  std::uint32_t* abortFlag;
  ncclLsaBarrierHandle_t hybridLsaBarrier;
  GinBarrierHandle hybridRailGinBarrier, worldGinBarrier;
};

/// ncclDevComm of NCCL 2.31 and 2.32.
struct DevComm231 {
  unsigned magic, version;
  int rank, nRanks;
  std::uint32_t nRanks_rcp32;
  int lsaRank, lsaSize;
  std::uint32_t lsaSize_rcp32;
  ncclDevCommWindowTable* windowTable;
  ncclWindow_t resourceWindow;
  struct {
    char* lsaFlatBase;
    std::uint32_t stride4G, mcOffset4K;
  } resourceWindow_inlined;
  GinBarrierHandle hybridDenseGinBarrier;
  ncclMultimemHandle_t lsaMultimem;
  ncclLsaBarrierHandle_t lsaBarrier;
  GinBarrierHandle railGinBarrier;
  std::uint8_t ginConnectionCount, backendIndex, ginNetDeviceTypes[4];
  void* ginHandles[4];
  int ginSignalCount, ginCounterCount;
  std::uint64_t* ginSignalShadows;
  std::uint32_t ginContextCount;
  int ginConnectionStride, ginContextStride;
  bool ginStrongLegacySignals;
  std::uint32_t* abortFlag;
  ncclLsaBarrierHandle_t hybridLsaBarrier;
  GinBarrierHandle hybridRailGinBarrier, worldGinBarrier;
  std::uint32_t ginConnectionStride_rcp32;
  int cftRank, cftSize, cftMultimemRank, cftMultimemSize;
  std::uint32_t cftMultimemSize_rcp32;
  ncclCftLeId_t ucLeId, mcLeId;
  ncclLsaBarrierHandle_t cftBarrier, cftMultimemBarrier;
};

struct TeamRequirements {
  TeamRequirements* next;
  ncclTeam_t team;
  bool multimem;
  ncclMultimemHandle_t* outMultimemHandle;
};

/// ncclDevCommRequirements behind its size, magic number and version, which 2.28 does not have.
struct DevCommRequirements {
  ncclDevResourceRequirements_t* resourceRequirementsList;
  TeamRequirements* teamRequirementsList;
  bool lsaMultimem;
  int barrierCount, lsaBarrierCount, railGinBarrierCount;
  int lsaLLA2ABlockCount, lsaLLA2ASlotCount;
  bool ginForceEnable;
  int ginContextCount, ginSignalCount, ginCounterCount;
  ncclGinConnectionType_t ginConnectionType;  // since 2.29.7
  bool ginExclusiveContexts;
  int ginQueueDepth;
  int ginTrafficClass;  // since 2.30
  int worldGinBarrierCount;
  bool ginStrongSignalsRequired, ginVaSignalsRequired;
  int ginCustomStride;  // since 2.31
  ncclGinType_t ginType;
  bool useRuntimeVersion;
  int cftCaps, cftBarrierCount;
};

static_assert(sizeof(ncclWindow_vidmem) == 96);
static_assert(offsetof(ncclWindow_vidmem, ginMultiSegmentWins) == 72);
static_assert(offsetof(ncclWindow_vidmem, ucLeIdBase) == 88);
static_assert(sizeof(ncclDevCommWindowTable) == 776);
static_assert(sizeof(DevComm228) == 200 && offsetof(DevComm228, lsaBarrier) == 120);
static_assert(sizeof(DevComm229) == 224);
static_assert(sizeof(DevComm230) == 240 && offsetof(DevComm230, lsaBarrier) == 128);
static_assert(offsetof(DevComm230, abortFlag) == 208);
static_assert(sizeof(DevComm231) == 248 && offsetof(DevComm231, lsaBarrier) == 80);
static_assert(offsetof(DevComm231, abortFlag) == 168);
static_assert(offsetof(DevComm231, hybridLsaBarrier) == 176);
static_assert(offsetof(DevCommRequirements, ginConnectionType) == 56);
static_assert(sizeof(DevCommRequirements) == 104);

}  // namespace ccl::detail::nccl
