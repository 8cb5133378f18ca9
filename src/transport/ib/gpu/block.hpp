#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/io/fd.hpp"
#include "transport/ib/gpu/memory.hpp"
#include "transport/ib/verbs/device.hpp"

namespace ccl::detail {

/// Memory of a GPU from which edges take the places of their slots, and its DMA-BUF. Drivers
/// allocate at least 2 MiB, and a registration is a limited resource, so an edge with small slots
/// does not have a block of its own. A place is never used twice, because a late write could hit
/// it. The block is freed with its last edge.
class IbGpuBlock {
 public:
  /// Allocates a block for a first place of `bytes` bytes.
  static Result<std::shared_ptr<IbGpuBlock>> make(const IbGpuPlace& where, std::size_t bytes);
  /// Returns the block that was published last for these sharers; null if there is none.
  static std::shared_ptr<IbGpuBlock> latest(const IbGpuPlace& where);
  /// Lets later edges use the block.
  static void publish(const IbGpuPlace& where, const std::shared_ptr<IbGpuBlock>& block);

  /// Returns the offset of a new place with these rights, or nothing if there is no room.
  std::optional<std::size_t> take(std::size_t bytes, unsigned access);
  /// Makes a descriptor of the block. Returns what went wrong.
  Result<void> export_dma_buf(const IbGpuPlace& where);
  void use(GpuReach reach) { reach_ = reach; }
  GpuReach reach() const { return reach_; }
  std::byte* base() const { return piece_.base; }

  /// Registers the place at `offset` with a device. Without remote access all of the block is
  /// registered, once for all its edges; a peer reaches no more than the place of its edge.
  Result<std::shared_ptr<IbMemory>> with(const std::shared_ptr<IbDevice>& device,
                                         std::size_t offset, std::size_t bytes, unsigned access);

 private:
  Result<std::shared_ptr<IbMemory>> add_to(const std::shared_ptr<IbDevice>& device,
                                           std::size_t offset, std::size_t bytes,
                                           unsigned access) const;

  GpuPiece piece_;
  Fd dma_buf_;
  GpuReach reach_ = GpuReach::none;
  std::mutex mutex_;  // guards the members below
  std::size_t used_ = 0;
  struct Whole {
    const IbDevice* device;
    unsigned access;
    std::weak_ptr<IbMemory> memory;
  };
  std::vector<Whole> whole_;  // registrations of the whole block
};

}  // namespace ccl::detail
