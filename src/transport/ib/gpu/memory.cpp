#include "transport/ib/gpu/memory.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "gpu/memory.hpp"
#include <dlfcn.h>
#include <unistd.h>

namespace ccl::detail {
namespace {

constexpr std::size_t grain = 64 << 10;  // of exports by drivers: at least a host page

Result<GpuPiece> allocate(GpuArena* arena, std::int64_t relay, std::size_t bytes) {
  CCL_TRY(auto memory, relay < 0 ? GpuMemory::allocate(arena->gpu(), bytes)
                                 : GpuMemory::allocate_on(relay, arena->gpu(), bytes));
  memory->pin();
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

Result<std::unique_ptr<IbGpuSlots>> IbGpuSlots::make(GpuArena* arena, std::int64_t relay,
                                                     std::size_t bytes,
                                                     const std::vector<IbPort>& ports,
                                                     unsigned access, std::string& why) {
  const GpuCalls& calls = gpu_calls();
  auto slots = std::make_unique<IbGpuSlots>();
  slots->access_ = access;
  auto piece = calls.allocate(arena, relay, (bytes + grain - 1) / grain * grain);
  if (!piece) {  // such as a GPU that is almost full
    why = piece.error().what;
    return std::unique_ptr<IbGpuSlots>{};
  }
  slots->piece_ = *std::move(piece);
  const auto try_all = [&](GpuReach scope) -> Result<void> {
    slots->reach_ = scope;
    slots->registered_.clear();
    for (const IbPort& port : ports) CCL_CHECK(slots->with(port.device));
    return {};
  };
  why.clear();
  CCL_TRY(const bool wanted, setting_flag("DMABUF_ENABLE"));
  if (wanted) {
    auto exported = calls.export_dma_buf(arena, slots->piece_);
    if (exported) {
      slots->dma_buf_ = std::move(*exported);
      const auto done = try_all(GpuReach::dma_buf);
      if (done) return slots;
      why = done.error().what;
    } else {
      why = exported.error().what;
    }
  } else {
    why = "CCL_DMABUF_ENABLE is 0";
  }
  if (!calls.has_peer_memory()) {
    why += "; nvidia-peermem is not loaded";
    return std::unique_ptr<IbGpuSlots>{};
  }
  if (const auto done = try_all(GpuReach::peer_memory); !done) {
    why += "; " + done.error().what;
    return std::unique_ptr<IbGpuSlots>{};
  }
  return slots;
}

Result<std::shared_ptr<IbMemory>> IbGpuSlots::with(const std::shared_ptr<IbDevice>& device) {
  const auto known = std::find_if(registered_.begin(), registered_.end(),
                                  [&](const auto& each) { return each.first == device; });
  if (known != registered_.end()) return known->second;
  auto made = reach_ == GpuReach::dma_buf
                  ? device->dma_buf_memory(dma_buf_.get(), piece_.base, piece_.bytes, access_)
                  : device->memory(piece_.base, piece_.bytes, access_);
  if (!made) return fail(made.error());
  registered_.emplace_back(device, *made);
  return *made;
}

}  // namespace ccl::detail
