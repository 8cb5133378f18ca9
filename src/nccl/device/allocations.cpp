#include "nccl/device/allocations.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "gpu/memory.hpp"

namespace ccl::detail::nccl {
namespace {

/// Memory that the program has, by address, and the GPUs that it is on.
struct Allocations {
  std::map<void*, std::shared_ptr<GpuMemory>> all;
  std::map<int, std::shared_ptr<Gpu>> gpus;
  ForkMutex mutex{[this] {
    renew(all);
    renew(gpus);
  }};
};
// Never destroyed: the driver may end earlier.
Allocations& allocations() {
  static constinit MadeOnce<Allocations> all;
  return all.get();
}

}  // namespace

Result<std::shared_ptr<Gpu>> gpu_of_process(int device) {
  Allocations& known = allocations();
  const std::lock_guard lock{known.mutex};
  std::shared_ptr<Gpu>& gpu = known.gpus[device];
  if (gpu == nullptr) {
    CCL_TRY(gpu, Gpu::open(device));
    int fabric = 0;
    (void)gpu->driver().device_get_attribute(
        &fabric, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, device);
    if (fabric != 0) gpu->use_fabric();
  }
  return gpu;
}

Result<void*> allocate_shareable(int device, std::size_t bytes) {
  CCL_TRY(auto gpu, gpu_of_process(device));
  CCL_TRY(auto memory, GpuMemory::allocate(std::move(gpu), bytes));
  CCL_CHECK(memory->open_to_all());
  void* const at = memory->base();
  const std::lock_guard lock{allocations().mutex};
  allocations().all.emplace(at, std::move(memory));
  return at;
}

bool release_shareable(void* memory) {
  std::shared_ptr<GpuMemory> ended;  // outside of the lock
  const std::lock_guard lock{allocations().mutex};
  const auto found = allocations().all.find(memory);
  if (found == allocations().all.end()) return false;
  ended = std::move(found->second);
  allocations().all.erase(found);
  return true;
}

}  // namespace ccl::detail::nccl
