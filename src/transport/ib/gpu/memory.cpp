#include "transport/ib/gpu/memory.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "gpu/memory.hpp"
#include "transport/ib/gpu/block.hpp"
#include <dlfcn.h>
#include <unistd.h>

namespace ccl::detail {
namespace {

Result<GpuPiece> allocate(GpuArena* arena, std::int64_t relay, std::size_t bytes) {
  CCL_TRY(auto memory, relay < 0 ? GpuMemory::allocate(arena->gpu(), bytes)
                                 : GpuMemory::allocate_on(relay, arena->gpu(), bytes));
  return GpuPiece{memory->base(), memory->name().bytes, memory};
}

Result<Fd> export_dma_buf(GpuArena* arena, const GpuPiece& piece) {
  const CudaDriver& cuda = arena->gpu()->driver();
  const Gpu::Current current{*arena->gpu()};
  int fd = -1;
  CCL_CHECK(
      cuda_check(cuda.mem_get_handle_for_range(&fd, reinterpret_cast<CUdeviceptr>(piece.base),
                                               piece.bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                 fmt::format("export {} bytes of GPU memory as a DMA-BUF", piece.bytes)));
  return Fd{fd};
}

bool has_gdrcopy() {
  if (::access("/dev/gdrdrv", F_OK) != 0) return false;
  void* const library = ::dlopen("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) ::dlclose(library);
  return library != nullptr;
}

constexpr GpuCalls own{allocate, export_dma_buf, [] { return finds_peer_memory(""); }, has_gdrcopy};
std::atomic<const GpuCalls*> replaced_calls{nullptr};

}  // namespace

const GpuCalls& gpu_calls() {
  const GpuCalls* const instead = replaced_calls.load();
  return instead != nullptr ? *instead : own;
}
void use_gpu_calls(const GpuCalls* instead) {
  replaced_calls.store(instead);
}
bool may_use_gpu_memory(const GpuArena* arena) {
  return arena != nullptr || replaced_calls.load() != nullptr;
}

bool finds_peer_memory(const std::string& root) {
  for (const char* const path :
       {"/sys/module/nvidia_peermem/version", "/sys/kernel/mm/memory_peers/nv_mem/version",
        "/sys/kernel/mm/memory_peers/nv_mem_nc/version"}) {
    if (::access((root + path).c_str(), F_OK) == 0) return true;
  }
  return false;
}

Result<void> IbGpuSlots::register_with(const std::vector<IbPort>& ports) {
  registered_.clear();
  for (const IbPort& port : ports) CCL_CHECK(with(port.device));
  return {};
}

bool IbGpuSlots::share(const IbGpuPlace& where, const std::vector<IbPort>& ports) {
  block_ = IbGpuBlock::latest(where);
  const auto place = block_ ? block_->take(bytes_, access_) : std::nullopt;
  offset_ = place.value_or(0);
  return place && register_with(ports);
}

Result<std::unique_ptr<IbGpuSlots>> IbGpuSlots::make(const IbGpuPlace& where, std::size_t bytes,
                                                     const std::vector<IbPort>& ports,
                                                     unsigned access, std::string& why) {
  auto slots = std::make_unique<IbGpuSlots>();
  slots->access_ = access;
  slots->bytes_ = bytes;
  if (slots->share(where, ports)) return slots;
  auto block = IbGpuBlock::make(where, bytes);
  if (!block) {  // such as a GPU that is almost full
    why = block.error().what;
    return std::unique_ptr<IbGpuSlots>{};
  }
  slots->block_ = *block;
  slots->offset_ = (*block)->take(bytes, access).value_or(0);
  const auto try_all = [&](GpuReach reach) -> Result<void> {
    (*block)->use(reach);
    CCL_CHECK(slots->register_with(ports));
    IbGpuBlock::publish(where, *block);
    return {};
  };
  why.clear();
  CCL_TRY(const bool wanted, setting_flag("DMABUF_ENABLE"));
  if (wanted) {
    Result<void> done = (*block)->export_dma_buf(where);
    if (done) done = try_all(GpuReach::dma_buf);
    if (done) return slots;
    why = done.error().what;
  } else {
    why = "CCL_DMABUF_ENABLE is 0";
  }
  if (!gpu_calls().has_peer_memory()) {
    why += "; nvidia-peermem is not loaded";
    return std::unique_ptr<IbGpuSlots>{};
  }
  if (const auto done = try_all(GpuReach::peer_memory); !done) {
    why += "; " + done.error().what;
    return std::unique_ptr<IbGpuSlots>{};
  }
  return slots;
}

std::byte* IbGpuSlots::base() const {
  return block_->base() + offset_;
}

GpuReach IbGpuSlots::scope() const {
  return block_->reach();
}

Result<std::shared_ptr<IbMemory>> IbGpuSlots::with(const std::shared_ptr<IbDevice>& device) {
  const auto known = std::find_if(registered_.begin(), registered_.end(),
                                  [&](const auto& each) { return each.first == device; });
  if (known != registered_.end()) return known->second;
  CCL_TRY(auto made, block_->with(device, offset_, bytes_, access_));
  registered_.emplace_back(device, made);
  return made;
}

}  // namespace ccl::detail
