#pragma once

// Layouts of the structures of NCCL's device interface: of ccl's declarations, or of NVIDIA's.
#include <cstddef>

#include "support/nccl_layout.hpp"

namespace ccl::test {

struct NcclDeviceLayout {
  int version = 0;
  NcclLayout dev_comm, window, table, wants;
};
NcclDeviceLayout nvidias_nccl_device_layout();

// Members that the type has, by name. Those for networks alone are left out.
#define CCL_OFFSET_OF(name)                                                                     \
  if constexpr (requires { of.name; }) {                                                        \
    all[#name] = reinterpret_cast<const char*>(&of.name) - reinterpret_cast<const char*>(&of) - \
                 (long long)(minus_bytes);                                                      \
  }
#define CCL_OFFSETS_BEGIN(Type) \
  NcclLayout all;               \
  const Type of{};              \
  all["size"] = (long long)(sizeof(Type)) - (long long)(minus_bytes);

template <class T>
NcclLayout layout_of_dev_comm() {
  constexpr int minus_bytes = 0;
  CCL_OFFSETS_BEGIN(T)
  CCL_OFFSET_OF(magic)
  CCL_OFFSET_OF(version)
  CCL_OFFSET_OF(rank)
  CCL_OFFSET_OF(nRanks)
  CCL_OFFSET_OF(nRanks_rcp32)
  CCL_OFFSET_OF(lsaRank)
  CCL_OFFSET_OF(lsaSize)
  CCL_OFFSET_OF(lsaSize_rcp32)
  CCL_OFFSET_OF(windowTable)
  CCL_OFFSET_OF(resourceWindow)
  CCL_OFFSET_OF(resourceWindow_inlined.lsaFlatBase)
  CCL_OFFSET_OF(resourceWindow_inlined.stride4G)
  CCL_OFFSET_OF(resourceWindow_inlined.mcOffset4K)
  CCL_OFFSET_OF(lsaMultimem)
  CCL_OFFSET_OF(lsaBarrier)
  CCL_OFFSET_OF(railGinBarrier)
  CCL_OFFSET_OF(ginHandles)
  CCL_OFFSET_OF(ginSignalCount)
  CCL_OFFSET_OF(ginCounterCount)
  CCL_OFFSET_OF(ginSignalShadows)
  CCL_OFFSET_OF(abortFlag)
  CCL_OFFSET_OF(hybridLsaBarrier)
  CCL_OFFSET_OF(hybridRailGinBarrier)
  CCL_OFFSET_OF(worldGinBarrier)
  CCL_OFFSET_OF(cftMultimemBarrier)
  return all;
}

template <class T>
NcclLayout layout_of_window() {
  constexpr int minus_bytes = 0;
  CCL_OFFSETS_BEGIN(T)
  all.erase("size");  // versions append members
  CCL_OFFSET_OF(winHost)
  CCL_OFFSET_OF(lsaFlatBase)
  CCL_OFFSET_OF(lsaRank)
  CCL_OFFSET_OF(worldRank)
  CCL_OFFSET_OF(stride4G)
  CCL_OFFSET_OF(mcOffset4K)
  CCL_OFFSET_OF(ginOffset4K)
  CCL_OFFSET_OF(winFlags)
  CCL_OFFSET_OF(ginWins)
  CCL_OFFSET_OF(ginMultiSegmentWins)
  CCL_OFFSET_OF(numSegments)
  CCL_OFFSET_OF(cftFlatRank)
  CCL_OFFSET_OF(ucLeIdBase)
  return all;
}

template <class T>
NcclLayout layout_of_table() {
  constexpr int minus_bytes = 0;
  CCL_OFFSETS_BEGIN(T)
  CCL_OFFSET_OF(entries[1].base)
  CCL_OFFSET_OF(entries[1].size)
  CCL_OFFSET_OF(entries[1].window)
  CCL_OFFSET_OF(next)
  return all;
}

/// Offsets behind the size, magic number and version, if the type has them.
template <class T>
NcclLayout layout_of_wants() {
  constexpr int minus_bytes = requires(T of) { of.magic; } ? 16 : 0;
  CCL_OFFSETS_BEGIN(T)
  CCL_OFFSET_OF(resourceRequirementsList)
  CCL_OFFSET_OF(teamRequirementsList)
  CCL_OFFSET_OF(lsaMultimem)
  CCL_OFFSET_OF(barrierCount)
  CCL_OFFSET_OF(lsaBarrierCount)
  CCL_OFFSET_OF(railGinBarrierCount)
  CCL_OFFSET_OF(lsaLLA2ABlockCount)
  CCL_OFFSET_OF(lsaLLA2ASlotCount)
  CCL_OFFSET_OF(ginForceEnable)
  CCL_OFFSET_OF(ginContextCount)
  CCL_OFFSET_OF(ginSignalCount)
  CCL_OFFSET_OF(ginCounterCount)
  CCL_OFFSET_OF(ginConnectionType)
  CCL_OFFSET_OF(ginExclusiveContexts)
  CCL_OFFSET_OF(ginQueueDepth)
  CCL_OFFSET_OF(ginTrafficClass)
  CCL_OFFSET_OF(worldGinBarrierCount)
  CCL_OFFSET_OF(ginStrongSignalsRequired)
  CCL_OFFSET_OF(ginVaSignalsRequired)
  CCL_OFFSET_OF(ginCustomStride)
  CCL_OFFSET_OF(ginType)
  CCL_OFFSET_OF(useRuntimeVersion)
  CCL_OFFSET_OF(cftCaps)
  CCL_OFFSET_OF(cftBarrierCount)
  return all;
}

}  // namespace ccl::test
