#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/gpu_memory.hpp"
#include "transport/ib/verbs/device.hpp"

namespace ccl::detail {

/// Access of RDMA devices to memory of a GPU. None of it has been run on hardware.
enum class GpuReach {
  none,        // slots are in pinned memory of the host, which the GPU reads and writes
  dma_buf,     // a descriptor that the GPU's driver exports and the device's driver imports
  peer_memory  // the module nvidia-peermem: devices register GPU addresses like host memory
};

/// GPU on which slots are to lie, and the edges that share blocks of its memory.
struct IbGpuPlace {
  const void* sharers = nullptr;  // equal for all edges of a communicator
  GpuArena* arena = nullptr;      // of the rank's own GPU
  std::int64_t relay = -1;        // bus id of another GPU; -1: the rank's own
};

class IbGpuBlock;

/// Slots of an edge in GPU memory, registered with every device of the ports.
class IbGpuSlots {
 public:
  /// Takes a place in the latest block of the sharers, or in a new one. Tries a new block with the
  /// GPU's driver and all devices: by DMA-BUF (unless CCL_DMABUF_ENABLE is 0), then by
  /// nvidia-peermem. Returns null and sets `why` if neither works: steps are then staged.
  static Result<std::unique_ptr<IbGpuSlots>> make(const IbGpuPlace& where, std::size_t bytes,
                                                  const std::vector<IbPort>& ports, unsigned access,
                                                  std::string& why);
  std::byte* base() const;
  GpuReach scope() const;
  /// Registration with a device; a device that was added later is tried now.
  Result<std::shared_ptr<IbMemory>> with(const std::shared_ptr<IbDevice>& device);

 private:
  Result<void> register_with(const std::vector<IbPort>& ports);
  /// Takes a place in the latest block. Returns false if it has none, or a device refuses it.
  bool share(const IbGpuPlace& where, const std::vector<IbPort>& ports);

  std::shared_ptr<IbGpuBlock> block_;
  std::size_t offset_ = 0, bytes_ = 0;
  unsigned access_ = 0;
  std::vector<std::pair<std::shared_ptr<IbDevice>, std::shared_ptr<IbMemory>>> registered_;
};

}  // namespace ccl::detail
