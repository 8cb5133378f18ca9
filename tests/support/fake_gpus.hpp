#pragma once

// CUDA driver whose GPUs are memory of this process. It tests access to peers' memory without GPUs,
// also over paths that fail.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/driver.hpp"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ccl::test {

/// Behavior of copies over a path.
enum class FakePath { well, lost, corrupt, stuck, slow, seen_late };

struct FakeGpus {
  static constexpr int usual = 40;  // devices, where a test does not say how many
  struct Link {
    bool access = true, nvlink = true;
    FakePath path = FakePath::well;
  };
  std::map<std::size_t, std::map<std::size_t, Link>> links{};  // that are unlike the others
  std::map<int, int> multiprocessors{};  // of these devices; the others have one
  std::map<int, int> capabilities{};     // of these devices; the others have 90
  std::map<int, int> instances{};        // of GPUs: these devices have the bus id of others
  int copies_between = 0;                // of GPUs, in all
  int refuses_to_map = -1;               // for this device, what is another's
  std::atomic<int> full{-1};             // this device, which has no memory left
  bool fabric = true;                    // handles for other hosts: here, other processes
  bool rdma = true;                      // NICs may register memory of cuMem handles
  std::atomic<int> for_rdma{0};          // such pieces of memory
  std::set<int> seen{};                  // the only devices that this process sees; empty: all
  bool exports = true;                   // other processes may have memory of cuMem handles
  bool dma_bufs = false;                 // there are descriptors of memory for RDMA devices
  int fabric_imports = 0, legacy_imports = 0;
  std::atomic<int> imports{0};  // of memory by file descriptors

  bool sees(int device) const { return seen.empty() || seen.count(device) != 0; }

  Link link_of(int a, int b) const {
    const auto from = links.find(std::size_t(a));
    if (from == links.end()) return {};
    const auto to = from->second.find(std::size_t(b));
    return to == from->second.end() ? Link{} : to->second;
  }
  /// Both ways.
  void link(int a, int b, Link how) {
    links[std::size_t(a)][std::size_t(b)] = links[std::size_t(b)][std::size_t(a)] = how;
  }

  /// Memory, where it is mapped.
  struct Region {
    std::size_t bytes = 0;
    int device = -1;
    std::vector<int> accessible;    // to these
    int fd = -1;                    // of memory without a handle
    int pages = -1;                 // descriptor of memory with a handle, if a test keeps it
    unsigned long long number = 0;  // of the mapping, which is not used again, if a test keeps it
  };
  std::mutex mutex;
  std::map<std::uintptr_t, Region> regions;
  std::set<std::pair<int, int>> enabled;  // the one reaches the other's legacy memory
  const Region* region(const void* at) const {
    const auto next = regions.upper_bound(reinterpret_cast<std::uintptr_t>(at));
    if (next == regions.begin()) return nullptr;
    const auto& [base, region] = *std::prev(next);
    return reinterpret_cast<std::uintptr_t>(at) < base + region.bytes ? &region : nullptr;
  }

  /// In the place of libcuda, for the life of this process.
  static FakeGpus& install(int devices);
};

namespace fake {
using detail::CudaDriver;
using Clock = std::chrono::steady_clock;

inline FakeGpus& gpus() {
  static FakeGpus* const all = new FakeGpus;
  return *all;
}
struct Stream {
  int device = 0;
  Clock::time_point busy_until{};  // by the GPU's clock
  Clock::time_point seen_at{};     // when the host finds out
  bool stuck = false;
};
struct Event {
  Clock::time_point at{}, seen_at{};
  bool never = false;
};
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
inline std::vector<int>& contexts() {
  thread_local std::vector<int> stack;
  return stack;
}
constexpr int in_contexts = 1 << 16;  // contexts of each kind
/// The number of a further context of a GPU, which is not its primary one.
constexpr int further_context(int device) {
  return device + in_contexts;
}
inline int current_context() {
  return contexts().empty() ? -1 : contexts().back();
}
inline int current() {
  return contexts().empty() ? -1 : contexts().back() % in_contexts;
}
inline CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(std::uintptr_t(device + 1));
}
constexpr unsigned domain = 0xfade;  // from here on, domains that no machine has
constexpr unsigned in_domain = 128;  // devices

/// Whatever is not written below is not to be had.
template <class F>
struct Refuses;
template <class... A>
struct Refuses<CUresult (*)(A...)> {
  static CUresult call(A...) { return CUDA_ERROR_NOT_SUPPORTED; }
};

inline CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream on) {
  FakeGpus& all = gpus();
  Stream& stream = *reinterpret_cast<Stream*>(on);
  auto* const target = reinterpret_cast<char*>(to);
  auto* const source = reinterpret_cast<const char*>(from);
  const std::lock_guard lock{all.mutex};
  const FakeGpus::Region* const there = all.region(target);
  const FakeGpus::Region* const here = all.region(source);
  const auto reaches = [&](const FakeGpus::Region* region) {
    return region == nullptr ||
           std::count(region->accessible.begin(), region->accessible.end(), stream.device) != 0;
  };
  if (!reaches(there) || !reaches(here)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto remote = [&](const FakeGpus::Region* region) {
    return region != nullptr && region->device != stream.device;
  };
  const FakeGpus::Region* const peer = remote(there) ? there : remote(here) ? here : nullptr;
  const FakePath path =
      peer == nullptr ? FakePath::well : all.link_of(stream.device, peer->device).path;
  all.copies_between += peer != nullptr;
  // Data written to a lost path reads back as written, but does not reach the peer.
  static std::map<const char*, std::vector<char>> lost;
  if (path == FakePath::stuck) stream.stuck = true;
  if (stream.stuck) return CUDA_SUCCESS;
  if (path == FakePath::slow) {
    stream.busy_until = std::max(stream.busy_until, Clock::now()) + std::chrono::milliseconds{20};
  }
  if (path == FakePath::seen_late) stream.seen_at = Clock::now() + std::chrono::milliseconds{20};
  if (path == FakePath::lost && peer == there) {
    lost[target].assign(source, source + bytes);
  } else if (path == FakePath::lost && lost.count(source) != 0) {
    std::memcpy(target, lost[source].data(), std::min(bytes, lost[source].size()));
  } else {
    std::memmove(target, source, bytes);
    if (path == FakePath::corrupt && peer == there && bytes > 64) target[bytes / 2] ^= 4;
  }
  return CUDA_SUCCESS;
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

inline int value_of(const std::map<int, int>& values, int key, int other) {
  const auto found = values.find(key);
  return found == values.end() ? other : found->second;
}

/// Capture mode of this thread, which decides what it may call beside captures.
inline CUstreamCaptureMode& capture_mode() {
  static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

inline CudaDriver driver() {
  CudaDriver cuda;
#define CCL_FAKE_REFUSES(member, function) cuda.member = &Refuses<decltype(&::function)>::call;
  CCL_CUDA_DRIVER_CALLS(CCL_FAKE_REFUSES)
#undef CCL_FAKE_REFUSES
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
  cuda.memcpy_async = copy;
  cuda.memset_async = [](CUdeviceptr at, unsigned char value, std::size_t bytes, CUstream) {
    std::memset(reinterpret_cast<void*>(at), value, bytes);
    return CUDA_SUCCESS;
  };
  cuda.stream_create = [](CUstream* stream, unsigned) {
    *stream = reinterpret_cast<CUstream>(new Stream{current(), {}, {}, false});
    return CUDA_SUCCESS;
  };
  cuda.stream_destroy = [](CUstream stream) {
    delete reinterpret_cast<Stream*>(stream);
    return CUDA_SUCCESS;
  };
  cuda.stream_get_ctx = [](CUstream stream, CUcontext* context) {
    *context = context_of(reinterpret_cast<Stream*>(stream)->device);
    return CUDA_SUCCESS;
  };
  cuda.stream_synchronize = [](CUstream stream) {
    return reinterpret_cast<Stream*>(stream)->stuck ? CUDA_ERROR_LAUNCH_TIMEOUT : CUDA_SUCCESS;
  };
  cuda.event_create = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(new Event);
    return CUDA_SUCCESS;
  };
  cuda.event_destroy = [](CUevent event) {
    delete reinterpret_cast<Event*>(event);
    return CUDA_SUCCESS;
  };
  cuda.event_record = [](CUevent event, CUstream on) {
    const Stream& stream = *reinterpret_cast<Stream*>(on);
    *reinterpret_cast<Event*>(event) = {stream.busy_until, stream.seen_at, stream.stuck};
    return CUDA_SUCCESS;
  };
  cuda.event_query = [](CUevent event) {
    const Event& of = *reinterpret_cast<Event*>(event);
    const bool over = !of.never && Clock::now() >= std::max(of.at, of.seen_at);
    return over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  cuda.event_elapsed_time = [](float* ms, CUevent begun, CUevent ended) {
    const auto at = [](CUevent event) { return reinterpret_cast<Event*>(event)->at; };
    *ms = std::chrono::duration<float, std::milli>(at(ended) - at(begun)).count();
    return CUDA_SUCCESS;
  };
  return cuda;
}
}  // namespace fake

inline FakeGpus& FakeGpus::install(int devices) {
  detail::use_cuda_driver(fake::driver(), devices);
  return fake::gpus();
}

}  // namespace ccl::test
