#include "nccl/device/kernel_slot.hpp"

#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "gpu/memory.hpp"
#include "nccl/device/allocations.hpp"

namespace ccl::detail::nccl {
namespace {

constexpr std::size_t page_bytes = std::size_t{2} << 20;  // what a GPU allocates at least
constexpr std::size_t min_unused = 1000;

/// Slots of one GPU.
struct Slots {
  std::vector<std::shared_ptr<GpuMemory>> pages{};
  std::deque<std::byte*> unused{};  // the one that ended first is used first
};
struct AllSlots {
  std::map<int, Slots> by_device{};
  ForkMutex mutex{[this] { renew(by_device); }};
};
// Never destroyed: the driver may end earlier.
AllSlots& all_slots() {
  static constinit MadeOnce<AllSlots> all;
  return all.get();
}

}  // namespace

Result<std::unique_ptr<KernelSlot>> KernelSlot::take(int device) {
  CCL_TRY(auto gpu, gpu_of_process(device));
  AllSlots& all = all_slots();
  const std::lock_guard lock{all.mutex};
  Slots& slots = all.by_device[device];
  if (slots.unused.size() <= min_unused) {
    CCL_TRY(auto page, GpuMemory::allocate(gpu, page_bytes));
    for (std::size_t at = 0; at < page_bytes; at += bytes) {
      slots.unused.push_back(page->base() + at);
    }
    slots.pages.push_back(std::move(page));
  }
  std::unique_ptr<KernelSlot> taken{new KernelSlot{std::move(gpu), slots.unused.front()}};
  slots.unused.pop_front();
  return taken;
}

KernelSlot::~KernelSlot() {
  AllSlots& all = all_slots();
  const std::lock_guard lock{all.mutex};
  all.by_device[gpu_->device()].unused.push_back(at_);
}

Result<void> KernelSlot::write(std::size_t offset, const void* from, std::size_t count) const {
  return gpu_->put(at_ + offset, from, count);
}

}  // namespace ccl::detail::nccl
