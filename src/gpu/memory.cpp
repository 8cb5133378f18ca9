#include "gpu/memory.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/types/word.hpp>

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "base/random.hpp"
#include "gpu/allocation.hpp"
#include "gpu/devices.hpp"

namespace ccl::detail {
namespace {

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
  const std::string text = bus_id_text(bus_id);
  const CUresult seen = gpu->driver().device_get_by_pci_bus_id(&device, text.c_str());
  if (seen != CUDA_SUCCESS && gpu->loans()) {
    CCL_TRY(GpuLoan loan, gpu->loans()(bus_id, bytes));
    return take_loan(std::move(gpu), std::move(loan));
  }
  CCL_CHECK(cuda_check(seen, fmt::format("find GPU {}", text)));
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

Result<std::shared_ptr<GpuMemory>> GpuMemory::take_loan(std::shared_ptr<Gpu> gpu, GpuLoan loan) {
  std::shared_ptr<GpuMemory> memory{new GpuMemory{std::move(gpu)}};
  memory->own_ = true;  // peers know it by the name that it gets here
  CCL_CHECK(fill_random(&memory->name_.id, sizeof memory->name_.id));
  memory->name_.bytes = loan.bytes;
  memory->name_.handles = 1;
  memory->name_.borrowed = 1;
  {
    const Gpu::Current current{*memory->gpu_};
    CCL_CHECK(memory->import_handle(loan.pages));
    CCL_CHECK(memory->map_handle());
  }
  memory->loan_ = std::move(loan);
  Memories::instance().put(memory->name_, -1, memory);
  memory->enlisted_ = true;
  return memory;
}

Result<void> GpuMemory::allocate_legacy(std::size_t bytes) {
  const CudaDriver& cuda = gpu_->driver();
  // A handle names a whole allocation of the driver, which holds several small ones.
  constexpr std::size_t page = std::size_t{2} << 20;
  name_.bytes = div_up(bytes, page) * page;
  CUdeviceptr at = 0;
  CCL_CHECK(cuda_check(cuda.mem_alloc(&at, name_.bytes),
                       fmt::format("allocate {} bytes on device {}", name_.bytes, gpu_->device())));
  base_ = reinterpret_cast<std::byte*>(at);
  return cuda_check(cuda.ipc_get_mem_handle(ipc_of(name_), at), "get an IPC handle");
}

std::vector<std::shared_ptr<GpuMemory>> GpuMemory::all_of(const Gpu& gpu) {
  return Memories::instance().all_that(
      [&](const GpuMemory& one) { return one.gpu_.get() == &gpu; });
}
std::vector<std::shared_ptr<GpuMemory>> GpuMemory::that_can_rest(const Gpu& gpu) {
  return Memories::instance().all_that(
      [&](const GpuMemory& one) { return one.gpu_.get() == &gpu && one.can_rest(); });
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
    const Allocation opened = allocation_around(memory->gpu_->driver(), at);
    const std::size_t bytes = opened.end() - at;
    if (opened.bytes != 0 && name.bytes > bytes) {  // unknown to the driver: nothing to compare
      return fail(Errc::mismatch,
                  fmt::format("rank {} names {} bytes of memory whose handle has {} (run the same "
                              "version of ccl on all ranks)",
                              maker, name.bytes, bytes));
    }
  }
  Memories::instance().put(name, memory->gpu_->device(), memory);
  memory->enlisted_ = true;
  return memory;
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
  bytes = div_up(bytes, std::size_t{128}) * 128;
  CCL_CHECK(reserve(bytes));
  GpuBlock block{memory_, used_};
  used_ += bytes;
  return block;
}

}  // namespace ccl::detail
