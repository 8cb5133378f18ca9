#pragma once

// Memory of fake GPUs: files that processes map, with handles and without.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "fake_gpu_state.hpp"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ccl::test::fake {

struct Handle {
  int fd = -1;
  int device = -1;
};
/// Origin of memory opened in another process: a legacy handle or, in a process that acts as
/// another host, a fabric handle.
struct Elsewhere {
  int pid = 0;
  Handle held{};
  int open() const {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, held.fd);
    return ::open(path, O_RDWR | O_CLOEXEC);
  }
};
/// Memory of a device: a file, whose name tells any process the device.
inline int file_on(int device) {
  char name[32];
  std::snprintf(name, sizeof name, "fake-gpu-%d", device);
  return ::memfd_create(name, MFD_CLOEXEC);
}
inline int device_of(int fd) {
  char path[64], name[64] = {};
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  int device = -1;
  if (::readlink(path, name, sizeof name - 1) < 0) return -1;
  (void)std::sscanf(name, "/memfd:fake-gpu-%d", &device);
  return device;
}

/// Lets a device use memory of a handle. The caller holds the lock.
inline CUresult open_region(FakeGpus::Region& region, int device) {
  if (!gpus().sees(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (device != region.device &&
      (device == gpus().refuses_to_map || !gpus().link_of(device, region.device).access)) {
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  }
  if (std::count(region.accessible.begin(), region.accessible.end(), device) != 0) {
    return CUDA_ERROR_ALREADY_MAPPED;  // like the driver, if two threads map it
  }
  region.accessible.push_back(device);
  return CUDA_SUCCESS;
}

inline CUresult map_legacy(CUdeviceptr* at, std::size_t bytes, int fd, int device) {
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = reinterpret_cast<CUdeviceptr>(base);
  FakeGpus& all = gpus();
  const std::lock_guard lock{all.mutex};
  FakeGpus::Region region{bytes, device, {current()}, fd};
  for (const auto& [from, to] : all.enabled) {
    if (to == device) region.accessible.push_back(from);
  }
  all.regions[*at] = region;
  return CUDA_SUCCESS;
}
inline CUresult unmap_legacy(CUdeviceptr at) {
  const std::lock_guard lock{gpus().mutex};
  const auto found = gpus().regions.find(at);
  ::munmap(reinterpret_cast<void*>(at), found->second.bytes);
  ::close(found->second.fd);
  gpus().regions.erase(found);
  return CUDA_SUCCESS;
}

/// Adds the driver's functions on memory.
inline void add_memory(CudaDriver& cuda) {
  cuda.mem_host_alloc = [](void** at, std::size_t bytes, unsigned) {
    *at = ::operator new(bytes, std::align_val_t{4096});
    return CUDA_SUCCESS;
  };
  cuda.mem_host_register = [](void*, std::size_t, unsigned) { return CUDA_SUCCESS; };
  cuda.mem_host_unregister = [](void*) { return CUDA_SUCCESS; };
  cuda.mem_host_get_device_pointer = [](CUdeviceptr* there, void* at, unsigned) {
    *there = reinterpret_cast<CUdeviceptr>(at);
    return CUDA_SUCCESS;
  };
  cuda.mem_get_granularity = [](std::size_t* bytes, const CUmemAllocationProp*,
                                CUmemAllocationGranularity_flags) {
    *bytes = 1 << 16;
    return CUDA_SUCCESS;
  };
  cuda.mem_create = [](CUmemGenericAllocationHandle* handle, std::size_t bytes,
                       const CUmemAllocationProp* how, unsigned long long) {
    if ((how->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !gpus().fabric) {
      return CUDA_ERROR_NOT_PERMITTED;
    }
    if (!gpus().sees(how->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    const bool rdma = how->allocFlags.gpuDirectRDMACapable != 0;
    if (rdma && !gpus().rdma) return CUDA_ERROR_NOT_SUPPORTED;
    gpus().for_rdma += rdma ? 1 : 0;
    if (how->location.id == gpus().full) return CUDA_ERROR_OUT_OF_MEMORY;
    const int fd = file_on(how->location.id);
    if (fd < 0 || ::ftruncate(fd, off_t(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = reinterpret_cast<std::uintptr_t>(new Handle{fd, how->location.id});
    return CUDA_SUCCESS;
  };
  cuda.mem_release = [](CUmemGenericAllocationHandle handle) {
    auto* const held = reinterpret_cast<Handle*>(handle);
    ::close(held->fd);
    delete held;
    return CUDA_SUCCESS;
  };
  cuda.mem_export = [](void* to, CUmemGenericAllocationHandle handle,
                       CUmemAllocationHandleType type, unsigned long long) {
    const Handle& held = *reinterpret_cast<Handle*>(handle);
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
      const Elsewhere name{int(::getpid()), held};
      std::memcpy(to, &name, sizeof name);
    } else {
      if (!gpus().exports) return CUDA_ERROR_NOT_PERMITTED;
      *static_cast<int*>(to) = ::dup(held.fd);
    }
    return CUDA_SUCCESS;
  };
  cuda.mem_import = [](CUmemGenericAllocationHandle* handle, void* from,
                       CUmemAllocationHandleType type) {
    const std::lock_guard lock{gpus().mutex};
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
      Elsewhere name;
      std::memcpy(&name, from, sizeof name);
      const int fd = name.open();
      if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
      ++gpus().fabric_imports;
      *handle = reinterpret_cast<std::uintptr_t>(new Handle{fd, name.held.device});
      return CUDA_SUCCESS;
    }
    const int fd = ::dup(int(reinterpret_cast<std::uintptr_t>(from)));
    ++gpus().imports;
    *handle = reinterpret_cast<std::uintptr_t>(new Handle{fd, device_of(fd)});
    return CUDA_SUCCESS;
  };
  // RDMA devices of tests take addresses, so that the descriptor need not be of the memory.
  cuda.mem_get_handle_for_range = [](void* to, CUdeviceptr at, std::size_t bytes,
                                     CUmemRangeHandleType, unsigned long long) {
    const std::lock_guard lock{gpus().mutex};
    const FakeGpus::Region* const region = gpus().region(reinterpret_cast<void*>(at));
    if (!gpus().dma_bufs || region == nullptr || region->bytes < bytes ||
        !gpus().sees(region->device)) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    *static_cast<int*>(to) = file_on(region->device);
    return CUDA_SUCCESS;
  };
  cuda.mem_address_reserve = [](CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr,
                                unsigned long long) {
    void* const base = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *at = reinterpret_cast<CUdeviceptr>(base);
    return base == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  };
  cuda.mem_address_free = [](CUdeviceptr at, std::size_t bytes) {
    ::munmap(reinterpret_cast<void*>(at), bytes);
    return CUDA_SUCCESS;
  };
  cuda.mem_map = [](CUdeviceptr at, std::size_t bytes, std::size_t,
                    CUmemGenericAllocationHandle handle, unsigned long long) {
    const Handle& held = *reinterpret_cast<Handle*>(handle);
    struct stat file {};
    if (::fstat(held.fd, &file) != 0 || Word(file.st_size) < bytes) return CUDA_ERROR_INVALID_VALUE;
    void* const base = ::mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_FIXED, held.fd, 0);
    if (base == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
    const std::lock_guard lock{gpus().mutex};
    gpus().regions[at] = {bytes, held.device, {}};
    return CUDA_SUCCESS;
  };
  cuda.mem_unmap = [](CUdeviceptr at, std::size_t bytes) {
    ::mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
           -1, 0);
    const std::lock_guard lock{gpus().mutex};
    auto& all = gpus().regions;
    for (auto it = all.lower_bound(at); it != all.end() && it->first < at + bytes;) {
      if (it->second.pages >= 0) ::close(it->second.pages);
      it = all.erase(it);
    }
    return CUDA_SUCCESS;
  };
  cuda.mem_set_access = [](CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* access,
                           std::size_t count) {
    const std::lock_guard lock{gpus().mutex};
    auto& all = gpus().regions;
    for (auto it = all.find(at); it != all.end() && it->first < at + bytes; ++it) {
      for (std::size_t n = 0; n < count; ++n) {
        const CUresult done = open_region(it->second, access[n].location.id);
        if (done != CUDA_SUCCESS) return done;
      }
    }
    return all.contains(at) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  cuda.mem_get_access = [](unsigned long long* flags, const CUmemLocation* of, CUdeviceptr at) {
    const std::lock_guard lock{gpus().mutex};
    const FakeGpus::Region* const region = gpus().region(reinterpret_cast<void*>(at));
    if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto& all = region->accessible;
    *flags = std::count(all.begin(), all.end(), of->id) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                             : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  };
  // Legacy memory: what one device has enabled, it reaches all of.
  cuda.mem_alloc = [](CUdeviceptr* at, std::size_t bytes) {
    const int fd = file_on(current());
    if (fd < 0 || ::ftruncate(fd, off_t(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    return map_legacy(at, bytes, fd, current());
  };
  cuda.mem_free = unmap_legacy;
  cuda.ctx_enable_peer_access = [](CUcontext theirs, unsigned) {
    const std::pair<int, int> pair{current(), int(reinterpret_cast<std::uintptr_t>(theirs)) - 1};
    const std::lock_guard lock{gpus().mutex};
    if (!gpus().enabled.insert(pair).second) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    for (auto& [at, region] : gpus().regions) {
      if (region.fd >= 0 && region.device == pair.second) region.accessible.push_back(pair.first);
    }
    return CUDA_SUCCESS;
  };
  cuda.ipc_get_mem_handle = [](CUipcMemHandle* to, CUdeviceptr at) {
    const std::lock_guard lock{gpus().mutex};
    const FakeGpus::Region& region = gpus().regions.at(at);
    const Elsewhere name{int(::getpid()), {region.fd, region.device}};
    std::memcpy(to, &name, sizeof name);
    return CUDA_SUCCESS;
  };
  cuda.ipc_open_mem_handle = [](CUdeviceptr* at, CUipcMemHandle from, unsigned) {
    Elsewhere name;
    std::memcpy(static_cast<void*>(&name), &from, sizeof name);
    const int fd = name.open();
    struct stat file {};
    if (fd < 0 || ::fstat(fd, &file) != 0) return CUDA_ERROR_INVALID_VALUE;
    ++gpus().legacy_imports;
    return map_legacy(at, std::size_t(file.st_size), fd, name.held.device);
  };
  cuda.ipc_close_mem_handle = unmap_legacy;
}

}  // namespace ccl::test::fake
