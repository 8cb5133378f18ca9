#pragma once

#include <ccl/types/result.hpp>

#include <cuda.h>

#include <string_view>

namespace ccl::detail {

// A macro, because the names are macros, too, for the versions that the headers declare. Where the
// headers of CUDA 12 and 13 declare different ones, the version is named; all are of 12.3 (driver
// 545) or older.
#define CCL_CUDA_DRIVER_CALLS(X)                                              \
  X(init, cuInit)                                                             \
  X(device_get_count, cuDeviceGetCount)                                       \
  X(device_get, cuDeviceGet)                                                  \
  X(device_get_attribute, cuDeviceGetAttribute)                               \
  X(device_get_by_pci_bus_id, cuDeviceGetByPCIBusId)                          \
  X(device_get_pci_bus_id, cuDeviceGetPCIBusId)                               \
  X(device_get_uuid, cuDeviceGetUuid_v2)                                      \
  X(device_can_access_peer, cuDeviceCanAccessPeer)                            \
  X(device_get_p2p_attribute, cuDeviceGetP2PAttribute)                        \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain)                             \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease)                           \
  X(ctx_get_current, cuCtxGetCurrent)                                         \
  X(ctx_get_device, cuCtxGetDevice)                                           \
  X(ctx_get_id, cuCtxGetId)                                                   \
  X(ctx_push_current, cuCtxPushCurrent)                                       \
  X(ctx_pop_current, cuCtxPopCurrent)                                         \
  X(ctx_enable_peer_access, cuCtxEnablePeerAccess)                            \
  X(pointer_get_attributes, cuPointerGetAttributes)                           \
  X(mem_get_info, cuMemGetInfo)                                               \
  X(mem_alloc, cuMemAlloc)                                                    \
  X(mem_free, cuMemFree)                                                      \
  X(mem_host_alloc, cuMemHostAlloc)                                           \
  X(mem_host_register, cuMemHostRegister)                                     \
  X(mem_host_unregister, cuMemHostUnregister)                                 \
  X(mem_host_get_device_pointer, cuMemHostGetDevicePointer)                   \
  X(mem_create, cuMemCreate)                                                  \
  X(mem_release, cuMemRelease)                                                \
  X(mem_retain_handle, cuMemRetainAllocationHandle)                           \
  X(mem_get_properties, cuMemGetAllocationPropertiesFromHandle)               \
  X(mem_address_reserve, cuMemAddressReserve)                                 \
  X(mem_address_free, cuMemAddressFree)                                       \
  X(mem_map, cuMemMap)                                                        \
  X(mem_unmap, cuMemUnmap)                                                    \
  X(mem_set_access, cuMemSetAccess)                                           \
  X(mem_get_access, cuMemGetAccess)                                           \
  X(mem_get_granularity, cuMemGetAllocationGranularity)                       \
  X(mem_export, cuMemExportToShareableHandle)                                 \
  X(mem_get_handle_for_range, cuMemGetHandleForAddressRange)                  \
  X(mem_import, cuMemImportFromShareableHandle)                               \
  X(memcpy_async, cuMemcpyAsync)                                              \
  X(memset_async, cuMemsetD8Async)                                            \
  X(ipc_get_mem_handle, cuIpcGetMemHandle)                                    \
  X(ipc_open_mem_handle, cuIpcOpenMemHandle)                                  \
  X(ipc_close_mem_handle, cuIpcCloseMemHandle)                                \
  X(stream_create, cuStreamCreate)                                            \
  X(stream_destroy, cuStreamDestroy)                                          \
  X(stream_synchronize, cuStreamSynchronize)                                  \
  X(stream_batch_mem_op, cuStreamBatchMemOp)                                  \
  X(stream_wait_event, cuStreamWaitEvent)                                     \
  X(stream_get_id, cuStreamGetId)                                             \
  X(stream_get_ctx, cuStreamGetCtx)                                           \
  X(stream_is_capturing, cuStreamIsCapturing)                                 \
  X(stream_get_capture_info, cuStreamGetCaptureInfo_v3)                       \
  X(stream_update_capture_dependencies, cuStreamUpdateCaptureDependencies_v2) \
  X(graph_add_event_record_node, cuGraphAddEventRecordNode)                   \
  X(graph_add_dependencies, cuGraphAddDependencies_v2)                        \
  X(graph_remove_dependencies, cuGraphRemoveDependencies_v2)                  \
  X(graph_node_get_type, cuGraphNodeGetType)                                  \
  X(graph_kernel_node_get_params, cuGraphKernelNodeGetParams_v2)              \
  X(event_create, cuEventCreate)                                              \
  X(event_record, cuEventRecord)                                              \
  X(event_query, cuEventQuery)                                                \
  X(event_destroy, cuEventDestroy)                                            \
  X(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode)          \
  X(user_object_create, cuUserObjectCreate)                                   \
  X(user_object_release, cuUserObjectRelease)                                 \
  X(graph_retain_user_object, cuGraphRetainUserObject)                        \
  X(get_error_name, cuGetErrorName)                                           \
  X(get_error_string, cuGetErrorString)

/// libcuda, opened at run time: one binary serves machines with and without a driver.
struct CudaDriver {
#define CCL_CUDA_DRIVER_MEMBER(member, function) decltype(&::function) member = nullptr;
  CCL_CUDA_DRIVER_CALLS(CCL_CUDA_DRIVER_MEMBER)
  // Found by its first name: the headers of CUDA 13 mean that of 12.8, which takes the same.
  decltype(&::cuEventElapsedTime) event_elapsed_time = nullptr;
#undef CCL_CUDA_DRIVER_MEMBER
};

/// Returns the initialized driver, or an error that names what is missing. Any thread may call it
/// repeatedly.
Result<const CudaDriver*> cuda_driver();
/// Replaces libcuda in tests; must be called before any other use of the driver.
void use_cuda_driver(const CudaDriver& driver, int devices);
/// Number of GPUs that this process may use; 0 without a driver.
int cuda_device_count();

/// Error of a failed call: "cannot <what> (CUDA_ERROR_..., <text>)".
Error cuda_error(CUresult code, std::string_view what);
Result<void> cuda_failure(CUresult code, std::string_view what);
/// Compiled into its caller: a launch has six of these.
[[gnu::always_inline]] inline Result<void> cuda_check(CUresult code, std::string_view what) {
  if (code == CUDA_SUCCESS) return {};
  return cuda_failure(code, what);
}

}  // namespace ccl::detail
