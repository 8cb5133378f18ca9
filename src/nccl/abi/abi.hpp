#pragma once

// C interface of NCCL 2.32.3, written for this library: names, values and layouts are NCCL's, which
// programs are compiled with. tests/src/nccl/layout_test.cpp compares them with NVIDIA's header.
#include <climits>
#include <cstddef>
#include <cstdint>

#include <driver_types.h>

#define NCCL_MAJOR 2
#define NCCL_MINOR 32
#define NCCL_PATCH 3
#define NCCL_VERSION_CODE 23203

// This library exports the functions below; all others are hidden.
#pragma GCC visibility push(default)
extern "C" {

using ncclComm_t = struct ncclComm*;
using ncclWindow_t = struct ncclWindow_vidmem*;
using ncclParamHandle_t = struct ncclParamHandle*;

constexpr int NCCL_UNIQUE_ID_BYTES = 128;
struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};

// C programs may pass any number as an enumeration, which the type of each has room for.
enum ncclResult_t : int {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclSystemError,
  ncclInternalError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress,
  ncclTimeout,
  ncclNumResults
};

enum ncclDataType_t : int {
  ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclUint32,
  ncclInt64,
  ncclUint64,
  ncclFloat16,
  ncclFloat32,
  ncclFloat64,
  ncclBfloat16,
  ncclFloat8e4m3,
  ncclFloat8e5m2,
  ncclNumTypes,
  ncclChar = ncclInt8,
  ncclInt = ncclInt32,
  ncclHalf = ncclFloat16,
  ncclFloat = ncclFloat32,
  ncclDouble = ncclFloat64
};

enum ncclRedOp_t : int {
  ncclSum,
  ncclProd,
  ncclMax,
  ncclMin,
  ncclAvg,
  ncclNumOps,             // the first reduction of ncclRedOpCreatePreMulSum
  ncclMaxRedOp = INT_MAX  // the last
};
enum ncclScalarResidence_t : int { ncclScalarDevice, ncclScalarHostImmediate };

// Values that stand for "not set".
constexpr int NCCL_CONFIG_UNDEF_INT = INT_MIN;
#define NCCL_CONFIG_UNDEF_PTR nullptr
constexpr float NCCL_UNDEF_FLOAT = -1;
constexpr int NCCL_SPLIT_NOCOLOR = -1;
constexpr unsigned NCCL_API_MAGIC = 0xcafebeef;
constexpr unsigned NCCL_SIM_INFO_MAGIC = 0x74685283;

// Flags of windows, of which COLL_SYMMETRIC says that all ranks use the same offset.
constexpr int NCCL_WIN_DEFAULT = 0;
constexpr int NCCL_WIN_COLL_SYMMETRIC = 1;
constexpr int NCCL_WIN_STRICT_ORDERING = 2;
constexpr int NCCL_WIN_GIN_ONLY = 4;
constexpr int NCCL_WIN_CFT_COUNTED = 8;
constexpr int NCCL_WIN_REQUIRED_ALIGNMENT = 4096;  // bytes

constexpr int NCCL_CTA_POLICY_DEFAULT = 0;
constexpr int NCCL_CTA_POLICY_EFFICIENCY = 1;
constexpr int NCCL_CTA_POLICY_ZERO = 2;
constexpr int NCCL_SHRINK_DEFAULT = 0;
constexpr int NCCL_SHRINK_ABORT = 1;
constexpr int NCCL_REVOKE_DEFAULT = 0;
constexpr int NCCL_SUSPEND_MEM = 1;

enum ncclHostCftMode_t : int {
  ncclHostCftDefault = NCCL_CONFIG_UNDEF_INT,
  ncclHostCftEnable = 1,
  ncclHostCftDisable = 2,
  ncclHostCftFallback = 3
};
enum ncclNvlsHostMode_t : int {
  ncclNvlsHostModeDefault = NCCL_CONFIG_UNDEF_INT,
  ncclNvlsHostModeEnable = 0,
  ncclNvlsHostModeDisableTransport = 1,
  ncclNvlsHostModeDisableSymmetricMultimem = 2,
  ncclNvlsHostModeDisable = INT_MAX
};
enum ncclCommMemStat_t : int {
  ncclStatGpuMemSuspend,    // bytes of GPU memory that ncclCommSuspend gives back
  ncclStatGpuMemSuspended,  // 1 between ncclCommSuspend and ncclCommResume
  ncclStatGpuMemPersist,    // bytes of GPU memory that stay
  ncclStatGpuMemTotal
};
enum ncclEncryptionMode_t : int { NCCL_ENCRYPTION_MODE_NONE, NCCL_ENCRYPTION_MODE_PSK };

/// Configuration of a communicator. Later versions append members: `size` says where it ends.
struct ncclConfig_t {
  std::size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char* netName;
  int splitShare, trafficClass;
  const char* commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
  int graphUsageMode, numRmaCtx, maxP2pPeers, graphStreamOrdering, launchOrderImplicit, numRmaSig;
  int rmaEagerInit, hostCftMode, nvlsHostMode;
};

/// Option of a vendor, in a list.
struct ncclConfigExt_t {
  ncclConfigExt_t* next;
  struct {
    int vendorId, optionId;
  } key;
  union {
    int i;
    const char* s;
    void* raw;
  } val;
};

/// Configuration of one call, with the same head.
struct ncclCollConfig_t {
  std::size_t size;
  unsigned magic, version;
  ncclConfigExt_t* ext;
  int minCTAs, maxCTAs, nvlsCTAs, cgaClusterSize;
  const char* algSelection;
  int forceAlgSelection, CTAPolicy;
  std::uint64_t userProfilerTag;
  cudaEvent_t launchCompletionEvent;
};

struct ncclSimInfo_t {
  std::size_t size;
  unsigned magic, version;
  float estimatedTime;  // us
};

struct ncclEncryptionConfig_t {
  std::size_t size;
  unsigned magic, version;
  int mode;
  const char* psk;
};

/// Signals that ncclWaitSignal waits for.
struct ncclWaitSignalDesc_t {
  int opCnt, peer, sigIdx, ctx;
};

ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes);
ncclResult_t ncclMemFree(void* memory);
ncclResult_t ncclGetVersion(int* version);
const char* ncclGetErrorString(ncclResult_t code);
const char* ncclGetLastError(ncclComm_t comm);
void ncclResetDebugInit();
void pncclResetDebugInit();

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                      ncclUniqueId* ids, ncclConfig_t* config);
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int ranks, const int* devices);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config);
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* made,
                            ncclConfig_t* config, int flags);
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank,
                          ncclComm_t* made, ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, std::uint64_t* value);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, std::size_t bytes,
                              void** handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, std::size_t bytes,
                                    ncclWindow_t* made, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** memory);

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t where, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

ncclResult_t ncclAllReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBcast(void* data, std::size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAlltoAll(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGather(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclScatter(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduceConfig(const void* send, void* recv, std::size_t count,
                                 ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                 cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclReduceScatterConfig(const void* send, void* recv, std::size_t count,
                                     ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                     cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclReduceConfig(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config);
ncclResult_t ncclAllGatherConfig(const void* send, void* recv, std::size_t count,
                                 ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config);
ncclResult_t ncclBroadcastConfig(const void* send, void* recv, std::size_t count,
                                 ncclDataType_t type, int root, ncclComm_t comm,
                                 cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclAlltoAllConfig(const void* send, void* recv, std::size_t count,
                                ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
                                const ncclCollConfig_t* config);
ncclResult_t ncclGatherConfig(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                              int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config);
ncclResult_t ncclScatterConfig(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                               int root, ncclComm_t comm, cudaStream_t stream,
                               const ncclCollConfig_t* config);
ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* recv, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclPutSignal(const void* send, std::size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t window, std::size_t offset, int signal, int context,
                           unsigned flags, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm,
                        cudaStream_t stream);
ncclResult_t ncclWaitSignal(int count, ncclWaitSignalDesc_t* signals, ncclComm_t comm,
                            cudaStream_t stream);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info);

ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t* config);

ncclResult_t ncclParamBind(ncclParamHandle_t* handle, const char* key);
ncclResult_t ncclParamGetI8(ncclParamHandle_t handle, std::int8_t* value);
ncclResult_t ncclParamGetI16(ncclParamHandle_t handle, std::int16_t* value);
ncclResult_t ncclParamGetI32(ncclParamHandle_t handle, std::int32_t* value);
ncclResult_t ncclParamGetI64(ncclParamHandle_t handle, std::int64_t* value);
ncclResult_t ncclParamGetU8(ncclParamHandle_t handle, std::uint8_t* value);
ncclResult_t ncclParamGetU16(ncclParamHandle_t handle, std::uint16_t* value);
ncclResult_t ncclParamGetU32(ncclParamHandle_t handle, std::uint32_t* value);
ncclResult_t ncclParamGetU64(ncclParamHandle_t handle, std::uint64_t* value);
ncclResult_t ncclParamGetStr(ncclParamHandle_t handle, const char** value);
ncclResult_t ncclParamGet(ncclParamHandle_t handle, void* value, int most, int* length);
ncclResult_t ncclParamGetParameter(const char* key, const char** value, int* length);
ncclResult_t ncclParamGetAllParameterKeys(const char*** keys, int* count);
void ncclParamDumpAll();
}
#pragma GCC visibility pop

#define NCCL_CONFIG_INITIALIZER                                                       \
  {                                                                                   \
    sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT,   \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, nullptr, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, nullptr, NCCL_CONFIG_UNDEF_INT, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,          \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,          \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,          \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,          \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT                                  \
  }
#define NCCL_COLLCONFIG_INITIALIZER                                                              \
  {                                                                                              \
    sizeof(ncclCollConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, nullptr, NCCL_CONFIG_UNDEF_INT, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, nullptr, 1,         \
        NCCL_CONFIG_UNDEF_INT, 0, nullptr                                                        \
  }
#define NCCL_SIM_INFO_INITIALIZER \
  { sizeof(ncclSimInfo_t), NCCL_SIM_INFO_MAGIC, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }
#define NCCL_ENCRYPTION_CONFIG_INITIALIZER                                                        \
  {                                                                                               \
    sizeof(ncclEncryptionConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_ENCRYPTION_MODE_NONE, \
        nullptr                                                                                   \
  }

// Layouts that programs are compiled with.
static_assert(sizeof(ncclUniqueId) == 128);
static_assert(sizeof(ncclConfig_t) == 120);
static_assert(offsetof(ncclConfig_t, netName) == 32);
static_assert(offsetof(ncclConfig_t, commName) == 48);
static_assert(offsetof(ncclConfig_t, graphUsageMode) == 80);
static_assert(offsetof(ncclConfig_t, launchOrderImplicit) == 96);
static_assert(offsetof(ncclConfig_t, nvlsHostMode) == 112);
static_assert(sizeof(ncclConfigExt_t) == 24 && offsetof(ncclConfigExt_t, val) == 16);
static_assert(sizeof(ncclCollConfig_t) == 72);
static_assert(offsetof(ncclCollConfig_t, algSelection) == 40);
static_assert(offsetof(ncclCollConfig_t, userProfilerTag) == 56);
static_assert(sizeof(ncclSimInfo_t) == 24);
static_assert(sizeof(ncclEncryptionConfig_t) == 32);
static_assert(sizeof(ncclWaitSignalDesc_t) == 16);
