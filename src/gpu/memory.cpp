#include "gpu/memory.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <tuple>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "base/random.hpp"
#include "gpu/allocation.hpp"
#include "gpu/devices.hpp"

namespace ccl::detail {
namespace {

constexpr std::size_t up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

/// Memory that this process has made (by its own device) or mapped (by the mapping device), by id.
struct Memories {
  using Key = std::tuple<Word, Word, int>;  // device -1: the owner
  std::map<Key, std::weak_ptr<GpuMemory>> known;
  ForkMutex mutex{[this] { renew(known); }};
  static Memories& instance() {
    static constinit MadeOnce<Memories> one;
    return one.get();
  }
  std::shared_ptr<GpuMemory> find(const GpuMemoryName& name, int device) {
    const std::lock_guard lock{mutex};
    const auto found = known.find({name.id[0], name.id[1], device});
    return found == known.end() ? nullptr : found->second.lock();
  }
  void put(const GpuMemoryName& name, int device, std::weak_ptr<GpuMemory> memory) {
    const std::lock_guard lock{mutex};
    known[{name.id[0], name.id[1], device}] = std::move(memory);
  }
  template <class F>
  std::vector<std::shared_ptr<GpuMemory>> all_that(F f) {
    std::vector<std::shared_ptr<GpuMemory>> all;
    const std::lock_guard lock{mutex};
    for (const auto& [key, one] : known) {
      if (auto memory = one.lock(); memory && f(*memory)) all.push_back(std::move(memory));
    }
    return all;
  }
  void drop(const GpuMemoryName& name, int device) {
    const std::lock_guard lock{mutex};
    const auto found = known.find({name.id[0], name.id[1], device});
    if (found != known.end() && found->second.expired()) known.erase(found);
  }
};

/// Properties of memory on a device. RDMA devices may register it if the GPU can allow that: some
/// drivers refuse memory that was not asked for as such.
CUmemAllocationProp properties(const CudaDriver& cuda, int device, bool fabric) {
  CUmemAllocationProp how{};
  how.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  how.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  how.location.id = device;
  unsigned types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (fabric) types |= CU_MEM_HANDLE_TYPE_FABRIC;
  how.requestedHandleTypes = CUmemAllocationHandleType(types);
  int rdma = 0;
  (void)cuda.device_get_attribute(
      &rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device);
  how.allocFlags.gpuDirectRDMACapable = rdma != 0 ? 1 : 0;
  return how;
}
CUmemAccessDesc writable(int device) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

CUipcMemHandle* ipc_of(GpuMemoryName& name) {
  return reinterpret_cast<CUipcMemHandle*>(name.key.data());
}

Result<bool> has_handles(const Gpu& gpu) {
  CCL_TRY(const bool wanted, setting_flag("CUMEM_ENABLE"));
  if (!wanted) return false;
  CUdevice device;
  CCL_CHECK(cuda_check(gpu.driver().device_get(&device, gpu.device()), "get the device"));
  int managed = 0, files = 0;
  (void)gpu.driver().device_get_attribute(
      &managed, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  (void)gpu.driver().device_get_attribute(
      &files, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
  return managed != 0 && files != 0;
}

}  // namespace

Result<std::shared_ptr<GpuMemory>> GpuMemory::allocate(std::shared_ptr<Gpu> gpu,
                                                       std::size_t bytes) {
  CCL_TRY(const bool handles, has_handles(*gpu));
  const int device = handles ? gpu->device() : -1;
  return make(std::move(gpu), bytes, device);
}

Result<std::shared_ptr<GpuMemory>> GpuMemory::allocate_on(std::int64_t bus_id,
                                                          std::shared_ptr<Gpu> gpu,
                                                          std::size_t bytes) {
  CUdevice device = -1;
  CCL_CHECK(cuda_check(gpu->driver().device_get_by_pci_bus_id(&device, bus_id_text(bus_id).c_str()),
                       fmt::format("find GPU {}", bus_id_text(bus_id))));
  return make(std::move(gpu), bytes, device);
}

Result<std::shared_ptr<GpuMemory>> GpuMemory::make(std::shared_ptr<Gpu> gpu, std::size_t bytes,
                                                   int device) {
  std::shared_ptr<GpuMemory> memory{new GpuMemory{std::move(gpu)}};
  memory->own_ = true;
  CCL_CHECK(fill_random(&memory->name_.id, sizeof memory->name_.id));
  {
    const Gpu::Current current{*memory->gpu_};
    CCL_CHECK(device >= 0 ? memory->allocate_handles(bytes, device)
                          : memory->allocate_legacy(bytes));
  }
  CCL_CHECK(memory->gpu_->clear(memory->base_, memory->name_.bytes));
  Memories::instance().put(memory->name_, -1, memory);
  memory->enlisted_ = true;
  return memory;
}

Result<void> GpuMemory::allocate_handles(std::size_t bytes, int device) {
  device_ = device;
  name_.bytes = bytes;
  Result<void> made = create_handle(gpu_->fabric());
  if (!made && gpu_->fabric() && made.error().code != Errc::out_of_memory) {
    // Without access to the fabric (IMEX), memory serves this host only.
    log_info(LogPart::p2p, "no memory for other hosts: {}", made.error().what);
    CCL_CHECK(unmap());
    made = create_handle(false);
  }
  CCL_CHECK(made);
  return map_handle();
}

/// Takes pages on the device: at least `name_.bytes` bytes.
Result<void> GpuMemory::create_handle(bool fabric) {
  const CudaDriver& cuda = gpu_->driver();
  const CUmemAllocationProp how = properties(cuda, device_, fabric);
  std::size_t grain = 0;
  CCL_CHECK(cuda_check(cuda.mem_get_granularity(&grain, &how, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                       "ask for the granularity of memory"));
  name_.bytes = up(name_.bytes, grain);
  CUmemGenericAllocationHandle made = 0;
  CCL_CHECK(cuda_check(cuda.mem_create(&made, name_.bytes, &how, 0),
                       fmt::format("allocate {} bytes on device {}", name_.bytes, device_)));
  handle_ = made;
  name_.handles = 1;
  return fabric ? export_fabric() : Result<void>{};
}

Result<void> GpuMemory::export_fabric() {
  CUmemFabricHandle fabric;
  CCL_CHECK(cuda_check(gpu_->driver().mem_export(&fabric, handle_, CU_MEM_HANDLE_TYPE_FABRIC, 0),
                       "share memory with other hosts (is /dev/nvidia-caps-imex-channels there?)"));
  std::memcpy(name_.key.data(), &fabric, sizeof fabric);
  name_.handles = 2;
  return {};
}

Result<void> GpuMemory::allocate_legacy(std::size_t bytes) {
  const CudaDriver& cuda = gpu_->driver();
  // A handle names a whole allocation of the driver, which holds several small ones.
  name_.bytes = up(bytes, std::size_t{2} << 20);
  CUdeviceptr at = 0;
  CCL_CHECK(cuda_check(cuda.mem_alloc(&at, name_.bytes),
                       fmt::format("allocate {} bytes on device {}", name_.bytes, gpu_->device())));
  base_ = reinterpret_cast<std::byte*>(at);
  return cuda_check(cuda.ipc_get_mem_handle(ipc_of(name_), at), "get an IPC handle");
}

Result<void> GpuMemory::map_handle() {
  CUdeviceptr at = 0;
  CCL_CHECK(cuda_check(gpu_->driver().mem_address_reserve(&at, name_.bytes, 0, 0, 0),
                       "reserve addresses"));
  base_ = reinterpret_cast<std::byte*>(at);
  return map_pages();
}

/// Maps the pages of the handle at `base_`, for all devices that have used the memory.
Result<void> GpuMemory::map_pages() {
  CCL_CHECK(cuda_check(
      gpu_->driver().mem_map(reinterpret_cast<CUdeviceptr>(base_), name_.bytes, 0, handle_, 0),
      "map memory"));
  mapped_ = true;
  CCL_CHECK(open_to(gpu_->device()));
  const std::lock_guard lock{access_mutex_};
  for (const int device : accessible_) CCL_CHECK(open_to(device));
  return {};
}

/// Lets a device use memory of a handle. Where it may already, the driver is not asked again: a
/// repeated call fails, or removes the memory for a moment.
Result<void> GpuMemory::open_to(int device) {
  const CudaDriver& cuda = gpu_->driver();
  const auto at = reinterpret_cast<CUdeviceptr>(base_);
  const CUmemAccessDesc access = writable(device);
  unsigned long long has = 0;
  if (cuda.mem_get_access(&has, &access.location, at) == CUDA_SUCCESS && has == access.flags) {
    return {};
  }
  return cuda_check(cuda.mem_set_access(at, name_.bytes, &access, 1),
                    device == gpu_->device() ? fmt::format("let device {} use the memory", device)
                                             : fmt::format("let device {} use memory of device {}",
                                                           device, gpu_->device()));
}

Result<void> GpuMemory::open_to_all() {
  if (name_.handles == 0) return {};  // a program enables peers' access itself
  const Gpu::Current current{*gpu_};
  const std::lock_guard lock{access_mutex_};
  for (int device = 0; device < cuda_device_count(); ++device) {
    int reaches = 0;
    if (device == gpu_->device() || accessible_.contains(device)) continue;
    if (gpu_->driver().device_can_access_peer(&reaches, device, gpu_->device()) != CUDA_SUCCESS) {
      continue;
    }
    if (reaches == 0) continue;
    CCL_CHECK(open_to(device));
    accessible_.insert(device);
  }
  return {};
}

/// Undoes what a handle has been used for. The addresses stay reserved.
Result<void> GpuMemory::unmap() {
  const CudaDriver& cuda = gpu_->driver();
  Result<void> done;
  if (std::exchange(mapped_, false)) {
    done = cuda_check(cuda.mem_unmap(reinterpret_cast<CUdeviceptr>(base_), name_.bytes),
                      "unmap memory");
  }
  if (handle_ != 0) (void)cuda.mem_release(std::exchange(handle_, 0));
  return done;
}

std::vector<std::shared_ptr<GpuMemory>> GpuMemory::all_of(const Gpu& gpu) {
  return Memories::instance().all_that(
      [&](const GpuMemory& one) { return one.gpu_.get() == &gpu; });
}
std::vector<std::shared_ptr<GpuMemory>> GpuMemory::that_can_rest(const Gpu& gpu) {
  return Memories::instance().all_that(
      [&](const GpuMemory& one) { return one.gpu_.get() == &gpu && one.can_rest(); });
}

Result<void> GpuMemory::save() {
  if (!mapped_) return {};
  std::unique_ptr<std::byte[]> kept{new (std::nothrow) std::byte[name_.bytes]};
  if (kept == nullptr) {
    return fail(Errc::out_of_memory,
                fmt::format("no host memory for {} bytes of device {}", name_.bytes, device_));
  }
  CCL_CHECK(gpu_->get(kept.get(), base_, name_.bytes));
  saved_ = std::move(kept);
  return {};
}

Result<void> GpuMemory::rest() {
  const Gpu::Current current{*gpu_};
  return unmap();
}

Result<void> GpuMemory::wake() {
  if (mapped_) return {};
  const auto take = [&]() -> Result<void> {
    const Gpu::Current current{*gpu_};
    CCL_CHECK(create_handle(name_.handles == 2));
    return map_pages();
  };
  auto taken = take();
  if (taken && saved_) taken = gpu_->put(base_, saved_.get(), name_.bytes);
  if (!taken) (void)rest();
  return taken;
}

Result<void> GpuMemory::wake(const GpuMemoryName& name, const Fd& fd) {
  if (mapped_) return {};
  name_ = name;
  const auto take = [&]() -> Result<void> {
    const Gpu::Current current{*gpu_};
    CCL_CHECK(import_handle(fd));
    return map_pages();
  };
  auto taken = take();
  if (!taken) (void)rest();
  return taken;
}

Result<std::shared_ptr<GpuMemory>> GpuMemory::find(const Gpu& gpu, const GpuMemoryName& name) {
  auto memory = Memories::instance().find(name, -1);
  if (!memory || memory->gpu_->device() == gpu.device()) return memory;
  const CudaDriver& cuda = gpu.driver();
  const Gpu::Current current{gpu};
  // Runs once for each device. If several ranks have the same device, a repeated call fails, or
  // removes the memory for a moment during the first rank's copies.
  const std::lock_guard lock{memory->access_mutex_};
  if (memory->accessible_.count(gpu.device()) != 0) return memory;
  if (memory->name_.handles != 0) {
    CCL_CHECK(memory->open_to(gpu.device()));
    memory->accessible_.insert(gpu.device());
    return memory;
  }
  CUcontext theirs = nullptr;
  {
    const Gpu::Current owner{*memory->gpu_};
    (void)cuda.ctx_get_current(&theirs);
  }
  const CUresult code = cuda.ctx_enable_peer_access(theirs, 0);
  if (code != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
    CCL_CHECK(cuda_check(code, fmt::format("let device {} use memory of device {}", gpu.device(),
                                           memory->gpu_->device())));
  }
  memory->accessible_.insert(gpu.device());
  return memory;
}

Result<std::shared_ptr<GpuMemory>> GpuMemory::borrow(std::shared_ptr<Gpu> gpu, void* at,
                                                     std::size_t bytes, bool elsewhere) {
  const CudaDriver& cuda = gpu->driver();
  const Gpu::Current current{*gpu};
  const CUdeviceptr begin = reinterpret_cast<CUdeviceptr>(at);
  const Allocation whole = allocation_around(cuda, begin);
  if (whole.kind != CU_MEMORYTYPE_DEVICE || whole.device != gpu->device()) {
    return fail(Errc::invalid_argument,
                fmt::format("{} is not memory of device {} (peers map the memory of this rank's "
                            "GPU); take it from cudaMalloc there, or from SharedMemory",
                            at, gpu->device()));
  }
  if (begin + bytes > whole.end()) {
    return fail(Errc::invalid_argument,
                fmt::format("{} bytes from {} on end behind their allocation (of {} bytes from {} "
                            "on); peers map one allocation",
                            bytes, at, whole.bytes, reinterpret_cast<void*>(whole.begin)));
  }
  std::shared_ptr<GpuMemory> memory{new GpuMemory{std::move(gpu)}};
  memory->own_ = memory->borrowed_ = true;
  memory->name_.borrowed = 1;
  memory->base_ = reinterpret_cast<std::byte*>(whole.begin);
  memory->name_.bytes = whole.bytes;
  CCL_CHECK(fill_random(&memory->name_.id, sizeof memory->name_.id));
  if (whole.legacy) {
    if (elsewhere) {
      CCL_CHECK(cuda_check(cuda.ipc_get_mem_handle(ipc_of(memory->name_), whole.begin),
                           fmt::format("share the memory at {}", at)));
    }
  } else {
    int files = 0;
    CUmemAllocationProp how{};
    if (cuda.mem_retain_handle(&memory->handle_, at) == CUDA_SUCCESS &&
        cuda.mem_get_properties(&how, memory->handle_) == CUDA_SUCCESS) {
      files = how.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    if (memory->handle_ == 0 || (elsewhere && files == 0)) {
      return fail(Errc::not_supported,
                  fmt::format("the memory at {} cannot be shared (it is neither of cudaMalloc nor "
                              "of a cuMem handle for file descriptors); take SharedMemory",
                              at));
    }
    memory->name_.handles = 1;
    if (const AddressRange mapped = mapping_around(cuda, begin); mapped.bytes != 0) {
      if (begin + bytes > mapped.end()) {
        return fail(Errc::not_supported,
                    fmt::format("{} bytes from {} on lie in several mappings (the first has {} "
                                "bytes from {} on); peers map one, so take SharedMemory",
                                bytes, at, mapped.bytes, reinterpret_cast<void*>(mapped.begin)));
      }
      memory->base_ = reinterpret_cast<std::byte*>(mapped.begin);
      memory->name_.bytes = mapped.bytes;
    }
    if ((how.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && memory->gpu_->fabric()) {
      if (auto shown = memory->export_fabric(); !shown) {  // ranks of other hosts are refused
        log_info(LogPart::p2p, "no memory for other hosts: {}", shown.error().what);
      }
    }
  }
  Memories::instance().put(memory->name_, -1, memory);
  memory->enlisted_ = true;
  return memory;
}

std::shared_ptr<GpuMemory> GpuMemory::mapped(const Gpu& gpu, const GpuMemoryName& name) {
  return Memories::instance().find(name, gpu.device());
}

Result<void> GpuMemory::import_handle(const Fd& fd) {
  CUmemFabricHandle fabric;
  std::memcpy(&fabric, name_.key.data(), sizeof fabric);
  // The driver takes the descriptor in place of a pointer.
  void* const what = fd ? reinterpret_cast<void*>(std::uintptr_t(fd.get())) : &fabric;
  return cuda_check(gpu_->driver().mem_import(
                        &handle_, what,
                        fd ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_FABRIC),
                    fd ? "import a peer's memory" : "import memory of another host");
}

Result<std::shared_ptr<GpuMemory>> GpuMemory::map(std::shared_ptr<Gpu> gpu,
                                                  const GpuMemoryName& name, const Fd& fd,
                                                  int maker) {
  std::shared_ptr<GpuMemory> memory{new GpuMemory{std::move(gpu)}};
  memory->name_ = name;
  memory->maker_ = maker;
  const Gpu::Current current{*memory->gpu_};
  if (name.handles != 0) {
    CCL_CHECK(memory->import_handle(fd));
    CCL_CHECK(memory->map_handle());
  } else {
    CUdeviceptr at = 0;
    CUipcMemHandle ipc;
    std::memcpy(&ipc, name.key.data(), sizeof ipc);
    CCL_CHECK(cuda_check(
        memory->gpu_->driver().ipc_open_mem_handle(&at, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        "open a peer's memory"));
    memory->base_ = reinterpret_cast<std::byte*>(at);
  }
  Memories::instance().put(name, memory->gpu_->device(), memory);
  memory->enlisted_ = true;
  return memory;
}

Result<Fd> GpuMemory::share() const {
  int fd = -1;
  CCL_CHECK(cuda_check(
      gpu_->driver().mem_export(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "share memory"));
  return Fd{fd};
}

GpuMemory::~GpuMemory() {
  if (enlisted_) Memories::instance().drop(name_, own_ ? -1 : gpu_->device());
  const CudaDriver& cuda = gpu_->driver();
  const Gpu::Current current{*gpu_};
  const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(base_);
  if (borrowed_) {
    if (handle_ != 0) (void)cuda.mem_release(handle_);
  } else if (name_.handles != 0) {
    (void)unmap();
    if (base_ != nullptr) (void)cuda.mem_address_free(at, name_.bytes);
  } else if (base_ != nullptr) {
    if (own_) {
      (void)cuda.mem_free(at);
    } else {
      (void)cuda.ipc_close_mem_handle(at);
    }
  }
}

Result<void> GpuArena::reserve(std::size_t bytes) {
  if (memory_ && memory_->name().bytes - used_ >= bytes) return {};
  CCL_TRY(memory_, GpuMemory::allocate(gpu_, bytes));
  used_ = 0;
  return {};
}

Result<GpuBlock> GpuArena::allocate(std::size_t bytes) {
  bytes = up(bytes, 128);
  CCL_CHECK(reserve(bytes));
  GpuBlock block{memory_, used_};
  used_ += bytes;
  return block;
}

}  // namespace ccl::detail
