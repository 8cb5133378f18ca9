#include "transport/gpu_memory.hpp"

#include <atomic>

#include "gpu/memory.hpp"
#include <dlfcn.h>
#include <unistd.h>

namespace ccl::detail {
namespace {

Result<GpuPiece> allocate(GpuArena* arena, std::int64_t relay, std::size_t bytes) {
  CCL_TRY(auto memory, relay < 0 ? GpuMemory::allocate(arena->gpu(), bytes)
                                 : GpuMemory::allocate_on(relay, arena->gpu(), bytes));
  memory->pin();
  return GpuPiece{memory->base(), memory->name().bytes, memory, memory->on_loan()};
}

Result<Fd> export_dma_buf(GpuArena*, const GpuPiece& piece) {
  return static_cast<const GpuMemory*>(piece.owner.get())->dma_buf();
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

}  // namespace ccl::detail
