#pragma once

// Values and layouts of NCCL's C interface, read from the header that was included before: ccl's
// own, or NVIDIA's.
#include <cstddef>
#include <map>
#include <string>

namespace ccl::test {

using NcclLayout = std::map<std::string, long long>;
NcclLayout nvidias_nccl_layout();

}  // namespace ccl::test

// What NVIDIA's header of an older version lacks is left out.
#define CCL_NCCL_VALUES_2_28(value)                                                                \
  value(ncclSuccess) value(ncclUnhandledCudaError) value(ncclSystemError) value(ncclInternalError) \
      value(ncclInvalidArgument) value(ncclInvalidUsage) value(ncclRemoteError)                    \
          value(ncclInProgress) value(ncclInt8) value(ncclUint8) value(ncclInt32)                  \
              value(ncclUint32) value(ncclInt64) value(ncclUint64) value(ncclFloat16)              \
                  value(ncclFloat32) value(ncclFloat64) value(ncclBfloat16) value(ncclFloat8e4m3)  \
                      value(ncclFloat8e5m2) value(ncclNumTypes) value(ncclChar) value(ncclInt)     \
                          value(ncclHalf) value(ncclFloat) value(ncclDouble) value(ncclSum)        \
                              value(ncclProd) value(ncclMax) value(ncclMin) value(ncclAvg)         \
                                  value(ncclNumOps) value(ncclMaxRedOp) value(ncclScalarDevice)    \
                                      value(ncclScalarHostImmediate) value(NCCL_CONFIG_UNDEF_INT)  \
                                          value(NCCL_SPLIT_NOCOLOR) value(NCCL_WIN_DEFAULT) value( \
                                              NCCL_WIN_COLL_SYMMETRIC) value(NCCL_SHRINK_DEFAULT)  \
                                              value(NCCL_SHRINK_ABORT) value(NCCL_UNIQUE_ID_BYTES) \
                                                  value(NCCL_CTA_POLICY_DEFAULT)                   \
                                                      value(NCCL_CTA_POLICY_EFFICIENCY)            \
                                                          value(NCCL_CTA_POLICY_ZERO)
#define CCL_NCCL_VALUES_2_32(value)                                                               \
  value(ncclTimeout) value(ncclNumResults) value(NCCL_API_MAGIC) value(NCCL_WIN_STRICT_ORDERING)  \
      value(NCCL_WIN_GIN_ONLY) value(NCCL_WIN_CFT_COUNTED) value(NCCL_WIN_REQUIRED_ALIGNMENT)     \
          value(NCCL_REVOKE_DEFAULT) value(NCCL_SUSPEND_MEM) value(ncclHostCftDefault)            \
              value(ncclHostCftEnable) value(ncclHostCftDisable) value(ncclHostCftFallback)       \
                  value(ncclNvlsHostModeDefault) value(ncclNvlsHostModeEnable)                    \
                      value(ncclNvlsHostModeDisableTransport)                                     \
                          value(ncclNvlsHostModeDisableSymmetricMultimem)                         \
                              value(ncclNvlsHostModeDisable) value(ncclStatGpuMemSuspend)         \
                                  value(ncclStatGpuMemSuspended) value(ncclStatGpuMemPersist)     \
                                      value(ncclStatGpuMemTotal) value(NCCL_ENCRYPTION_MODE_NONE) \
                                          value(NCCL_ENCRYPTION_MODE_PSK)
#define CCL_NCCL_MEMBERS_2_28(member)                                                              \
  member(ncclConfig_t, size) member(ncclConfig_t, magic) member(ncclConfig_t, version) member(     \
      ncclConfig_t, blocking) member(ncclConfig_t, cgaClusterSize) member(ncclConfig_t, minCTAs)   \
      member(ncclConfig_t, maxCTAs) member(ncclConfig_t, netName) member(ncclConfig_t, splitShare) \
          member(ncclConfig_t, trafficClass) member(ncclConfig_t, commName)                        \
              member(ncclConfig_t, collnetEnable) member(ncclConfig_t, CTAPolicy)                  \
                  member(ncclConfig_t, shrinkShare) member(ncclConfig_t, nvlsCTAs)                 \
                      member(ncclConfig_t, nChannelsPerNetPeer)                                    \
                          member(ncclConfig_t, nvlinkCentricSched) member(ncclSimInfo_t, size)     \
                              member(ncclSimInfo_t, magic) member(ncclSimInfo_t, version)          \
                                  member(ncclSimInfo_t, estimatedTime)                             \
                                      member(ncclUniqueId, internal)
#define CCL_NCCL_MEMBERS_2_32(member)                                                              \
  member(ncclConfig_t, graphUsageMode) member(ncclConfig_t, numRmaCtx)                             \
      member(ncclConfig_t, maxP2pPeers) member(ncclConfig_t, graphStreamOrdering)                  \
          member(ncclConfig_t, launchOrderImplicit) member(ncclConfig_t, numRmaSig) member(        \
              ncclConfig_t, rmaEagerInit) member(ncclConfig_t, hostCftMode)                        \
              member(ncclConfig_t, nvlsHostMode) member(ncclConfigExt_t, next) member(             \
                  ncclConfigExt_t, key) member(ncclConfigExt_t, val) member(ncclCollConfig_t, ext) \
                  member(ncclCollConfig_t, minCTAs) member(ncclCollConfig_t, maxCTAs)              \
                      member(ncclCollConfig_t, nvlsCTAs) member(ncclCollConfig_t, cgaClusterSize)  \
                          member(ncclCollConfig_t, algSelection)                                   \
                              member(ncclCollConfig_t, forceAlgSelection)                          \
                                  member(ncclCollConfig_t, CTAPolicy)                              \
                                      member(ncclCollConfig_t, userProfilerTag)                    \
                                          member(ncclCollConfig_t, launchCompletionEvent)          \
                                              member(ncclEncryptionConfig_t, mode)                 \
                                                  member(ncclEncryptionConfig_t, psk)              \
                                                      member(ncclWaitSignalDesc_t, opCnt) member(  \
                                                          ncclWaitSignalDesc_t, peer)              \
                                                          member(ncclWaitSignalDesc_t, sigIdx)     \
                                                              member(ncclWaitSignalDesc_t, ctx)
#define CCL_NCCL_SIZES_2_32(size)                                                              \
  size(ncclConfig_t) size(ncclConfigExt_t) size(ncclCollConfig_t) size(ncclEncryptionConfig_t) \
      size(ncclSimInfo_t) size(ncclWaitSignalDesc_t) size(ncclUniqueId) size(ncclResult_t)     \
          size(ncclRedOp_t) size(ncclDataType_t)

#define CCL_NCCL_VALUE(name) all[#name] = (long long)(name);
#define CCL_NCCL_MEMBER(type, name) all[#type "." #name] = (long long)offsetof(type, name);
#define CCL_NCCL_SIZE(type) all["size of " #type] = (long long)sizeof(type);
// Fills `all`, a NcclLayout.
#define CCL_NCCL_LAYOUT_2_28()         \
  CCL_NCCL_VALUES_2_28(CCL_NCCL_VALUE) \
  CCL_NCCL_MEMBERS_2_28(CCL_NCCL_MEMBER)
#define CCL_NCCL_LAYOUT_2_32()           \
  CCL_NCCL_VALUES_2_32(CCL_NCCL_VALUE)   \
  CCL_NCCL_MEMBERS_2_32(CCL_NCCL_MEMBER) \
  CCL_NCCL_SIZES_2_32(CCL_NCCL_SIZE)
