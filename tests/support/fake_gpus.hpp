#pragma once

// CUDA driver whose GPUs are memory of this process. It tests access to peers' memory without GPUs,
// also over paths that fail.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "fake_gpu_memory.hpp"
#include "fake_gpu_state.hpp"
#include "fake_gpu_streams.hpp"

namespace ccl::test {

namespace fake {
constexpr unsigned domain = 0xfade;  // from here on, domains that no machine has
constexpr unsigned in_domain = 128;  // devices

/// Whatever is not written below is not to be had.
template <class F>
struct Refuses;
template <class... A>
struct Refuses<CUresult (*)(A...)> {
  static CUresult call(A...) { return CUDA_ERROR_NOT_SUPPORTED; }
};

inline int value_of(const std::map<int, int>& values, int key, int other) {
  const auto found = values.find(key);
  return found == values.end() ? other : found->second;
}

/// Capture mode of this thread, which decides what it may call beside captures.
inline CUstreamCaptureMode& capture_mode() {
  static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

/// Adds the driver's functions on devices and contexts.
inline void add_devices(CudaDriver& cuda) {
  cuda.get_error_name = [](CUresult, const char** name) {
    *name = "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
  };
  cuda.get_error_string = [](CUresult, const char** text) {
    *text = "of a fake driver";
    return CUDA_SUCCESS;
  };
  cuda.device_get = [](CUdevice* device, int n) {
    *device = n;
    return CUDA_SUCCESS;
  };
  cuda.device_get_pci_bus_id = [](char* text, int bytes, CUdevice device) {
    device = value_of(gpus().instances, device, device);
    std::snprintf(text, std::size_t(bytes), "%04x:%02x:00.0", domain + unsigned(device) / in_domain,
                  0x10 + unsigned(device) % in_domain);
    return CUDA_SUCCESS;
  };
  cuda.device_get_uuid = [](CUuuid* uuid, CUdevice device) {
    *uuid = {};
    std::memcpy(uuid->bytes, &device, sizeof device);
    return CUDA_SUCCESS;
  };
  cuda.device_get_by_pci_bus_id = [](CUdevice* device, const char* text) {
    unsigned in = 0, bus = 0;
    if (std::sscanf(text, "%x:%x:", &in, &bus) != 2 || in < domain) return CUDA_ERROR_INVALID_VALUE;
    *device = int((in - domain) * in_domain + bus - 0x10);
    return gpus().sees(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  };
  cuda.device_get_attribute = [](int* value, CUdevice_attribute what, CUdevice device) {
    const FakeGpus& all = gpus();
    *value = what == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
                 ? value_of(all.multiprocessors, device, 1)
             : what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
                 ? value_of(all.capabilities, device, 90) / 10
             : what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
                 ? value_of(all.capabilities, device, 90) % 10
             : what == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED ? int(all.rdma)
                                                                                   : 1;
    return CUDA_SUCCESS;
  };
  cuda.device_can_access_peer = [](int* can, CUdevice a, CUdevice b) {
    if (!gpus().sees(a) || !gpus().sees(b)) return CUDA_ERROR_INVALID_DEVICE;
    *can = gpus().link_of(a, b).access;
    return CUDA_SUCCESS;
  };
  cuda.device_get_p2p_attribute = [](int* value, CUdevice_P2PAttribute, CUdevice a, CUdevice b) {
    if (!gpus().sees(a) || !gpus().sees(b)) return CUDA_ERROR_INVALID_DEVICE;
    *value = gpus().link_of(a, b).nvlink;
    return CUDA_SUCCESS;
  };
  cuda.primary_ctx_retain = [](CUcontext* context, CUdevice device) {
    *context = context_of(device);
    return CUDA_SUCCESS;
  };
  cuda.primary_ctx_release = [](CUdevice) { return CUDA_SUCCESS; };
  cuda.ctx_push_current = [](CUcontext context) {
    contexts().push_back(int(reinterpret_cast<std::uintptr_t>(context)) - 1);
    return CUDA_SUCCESS;
  };
  cuda.ctx_pop_current = [](CUcontext* context) {
    *context = context_of(current_context());
    contexts().pop_back();
    return CUDA_SUCCESS;
  };
  cuda.ctx_get_current = [](CUcontext* context) {
    *context = current() < 0 ? nullptr : context_of(current_context());
    return CUDA_SUCCESS;
  };
  cuda.ctx_get_device = [](CUdevice* device) {
    *device = current();
    return current() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  };
  cuda.ctx_get_id = [](CUcontext context, unsigned long long* number) {
    *number = reinterpret_cast<std::uintptr_t>(context);
    return CUDA_SUCCESS;
  };
  cuda.thread_exchange_capture_mode = [](CUstreamCaptureMode* mode) {
    std::swap(*mode, capture_mode());
    return CUDA_SUCCESS;
  };
  cuda.graph_node_get_type = [](CUgraphNode, CUgraphNodeType* type) {
    *type = CU_GRAPH_NODE_TYPE_EMPTY;
    return CUDA_SUCCESS;
  };
}

inline CudaDriver driver() {
  CudaDriver cuda;
#define CCL_FAKE_REFUSES(member, function) cuda.member = &Refuses<decltype(&::function)>::call;
  CCL_CUDA_DRIVER_CALLS(CCL_FAKE_REFUSES)
#undef CCL_FAKE_REFUSES
  add_devices(cuda);
  add_memory(cuda);
  add_streams(cuda);
  return cuda;
}
}  // namespace fake

inline FakeGpus& FakeGpus::install(int devices) {
  detail::use_cuda_driver(fake::driver(), devices);
  return fake::gpus();
}

}  // namespace ccl::test
