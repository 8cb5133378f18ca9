#pragma once

#include <ccl/types/result.hpp>

#include "nccl/abi/abi.hpp"
#include "nccl/abi/device_abi.hpp"

namespace ccl::detail::nccl {

// Functions that every NCCL has, and those that a later one has.
// clang-format off
#define CCL_NCCL_NEEDED(X) \
  X(GetVersion) X(GetLastError) X(GetUniqueId) X(CommInitRankConfig) X(CommGetAsyncError) \
  X(CommDestroy) X(CommAbort) X(AllReduce) X(ReduceScatter) X(Reduce) X(RedOpCreatePreMulSum) \
  X(RedOpDestroy)
#define CCL_NCCL_LATER(X) \
  X(AllReduceConfig) X(ReduceScatterConfig) X(ReduceConfig) X(CommSuspend) X(CommResume) \
  X(CommWindowRegister) X(CommWindowDeregister) X(WinGetUserPtr) X(PutSignal) X(Signal) \
  X(WaitSignal) X(CommQueryProperties) X(DevCommCreate) X(DevCommDestroy) X(TeamLsa) \
  X(TeamRail) X(TeamCft) X(TeamCftMultimem) X(GetLsaDevicePointer) X(GetPeerDevicePointer) \
  X(GetLsaMultimemDevicePointer) X(GetMultimemDevicePointer) X(GetMultimemDeviceLeInfo) \
  X(GetCftDeviceLeInfo) X(GetPeerDeviceLeInfo) X(GinBarrierCreateRequirement) \
  X(GinOutboxCreateRequirement) X(GinInboxA2ACreateRequirement)
// clang-format on

/// Functions of the NCCL library that CCL_NCCL_FALLBACK names. Those of later versions are null in
/// an earlier one.
struct RealNccl {
#define CCL_NCCL_MEMBER(name) decltype(&nccl##name) name = nullptr;
  CCL_NCCL_NEEDED(CCL_NCCL_MEMBER)
  CCL_NCCL_LATER(CCL_NCCL_MEMBER)
#undef CCL_NCCL_MEMBER
  int version = 0;

  /// Converts what a function of the library returned. `comm` is its communicator, or null.
  Result<void> check(ncclResult_t code, const char* function, ncclComm_t comm) const;
};

/// Returns the library, which is loaded once and stays; null if the setting is empty. Fails with
/// `Errc::bad_setting` if it cannot be loaded, lacks functions that are needed, is ccl's own, or
/// may use NVLink multicast without being allowed to: see `keep_multicast_off`.
Result<const RealNccl*> real_nccl();

}  // namespace ccl::detail::nccl
