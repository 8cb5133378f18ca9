#include "transport/ib/gpu/block.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "transport/ib/gpu/block_size.hpp"

namespace ccl::detail {
namespace {

/// Block of each communicator and GPU to which the next edge is added.
struct Blocks {
  using Key = std::pair<const void*, std::int64_t>;  // sharers, and the GPU
  std::map<Key, std::weak_ptr<IbGpuBlock>> latest;
  ForkMutex mutex{[this] { renew(latest); }};
  static Blocks& get() {
    static constinit MadeOnce<Blocks> one;
    return one.get();
  }
};

bool is_remote(unsigned access) {
  return (access & (unsigned(IBV_ACCESS_REMOTE_WRITE) | unsigned(IBV_ACCESS_REMOTE_READ))) != 0;
}
std::size_t grain_of(unsigned access) {
  return is_remote(access) ? IbBlockSize::apart : IbBlockSize::together;
}

}  // namespace

Result<std::shared_ptr<IbGpuBlock>> IbGpuBlock::make(const IbGpuPlace& where, std::size_t bytes) {
  auto block = std::make_shared<IbGpuBlock>();
  const std::size_t all = IbBlockSize::of_block(bytes);
  CCL_TRY(block->piece_, gpu_calls().allocate(where.arena, where.relay, all));
  return block;
}

std::shared_ptr<IbGpuBlock> IbGpuBlock::latest(const IbGpuPlace& where) {
  Blocks& blocks = Blocks::get();
  const std::lock_guard lock{blocks.mutex};
  const auto found = blocks.latest.find({where.sharers, where.relay});
  return found == blocks.latest.end() ? nullptr : found->second.lock();
}

void IbGpuBlock::publish(const IbGpuPlace& where, const std::shared_ptr<IbGpuBlock>& block) {
  Blocks& blocks = Blocks::get();
  const std::lock_guard lock{blocks.mutex};
  std::erase_if(blocks.latest, [](const auto& each) { return each.second.expired(); });
  blocks.latest[{where.sharers, where.relay}] = block;
}

std::optional<std::size_t> IbGpuBlock::take(std::size_t bytes, unsigned access) {
  const std::size_t grain = grain_of(access);
  const std::lock_guard lock{mutex_};
  const std::size_t offset = IbBlockSize::up_to(used_, grain);
  const std::size_t end = offset + IbBlockSize::up_to(bytes, grain);
  if (end > piece_.bytes) return {};
  used_ = end;
  return offset;
}

Result<void> IbGpuBlock::export_dma_buf(const IbGpuPlace& where) {
  CCL_TRY(dma_buf_, gpu_calls().export_dma_buf(where.arena, piece_));
  return {};
}

Result<std::shared_ptr<IbMemory>> IbGpuBlock::add_to(const std::shared_ptr<IbDevice>& device,
                                                     std::size_t offset, std::size_t bytes,
                                                     unsigned access) const {
  return reach_ == GpuReach::dma_buf
             ? device->dma_buf_memory(dma_buf_.get(), offset, piece_.base + offset, bytes, access)
             : device->memory(piece_.base + offset, bytes, access);
}

Result<std::shared_ptr<IbMemory>> IbGpuBlock::with(const std::shared_ptr<IbDevice>& device,
                                                   std::size_t offset, std::size_t bytes,
                                                   unsigned access) {
  if (is_remote(access)) {
    return add_to(device, offset, IbBlockSize::up_to(bytes, grain_of(access)), access);
  }
  const std::lock_guard lock{mutex_};
  std::erase_if(whole_, [](const Whole& one) { return one.memory.expired(); });
  for (const Whole& one : whole_) {
    if (one.device != device.get() || one.access != access) continue;
    if (auto known = one.memory.lock()) return known;
  }
  CCL_TRY(auto made, add_to(device, 0, piece_.bytes, access));
  whole_.push_back({device.get(), access, made});
  return made;
}

}  // namespace ccl::detail
