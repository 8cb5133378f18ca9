#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/io/fd.hpp"
#include "transport/gpu_memory.hpp"
#include "transport/ib/verbs/device.hpp"

namespace ccl::detail {

/// Access of RDMA devices to memory of a GPU. None of it has been run on hardware.
enum class GpuReach {
  none,        // slots are in pinned memory of the host, which the GPU reads and writes
  dma_buf,     // a descriptor that the GPU's driver exports and the device's driver imports
  peer_memory  // the module nvidia-peermem: devices register GPU addresses like host memory
};

/// Slots in GPU memory, registered with every device of the ports.
class IbGpuSlots {
 public:
  /// Tries this memory with the GPU's driver and all devices: by DMA-BUF (unless CCL_DMABUF_ENABLE
  /// is 0), then by nvidia-peermem. Returns null and sets `why` if neither works: steps are then
  /// staged.
  static Result<std::unique_ptr<IbGpuSlots>> make(GpuArena* arena, std::int64_t relay,
                                                  std::size_t bytes,
                                                  const std::vector<IbPort>& ports, unsigned access,
                                                  std::string& why);
  std::byte* base() const { return piece_.base; }
  GpuReach scope() const { return reach_; }
  /// Registration with a device; a device that was added later is tried now.
  Result<std::shared_ptr<IbMemory>> with(const std::shared_ptr<IbDevice>& device);

 private:
  GpuPiece piece_;
  Fd dma_buf_;
  GpuReach reach_ = GpuReach::none;
  unsigned access_ = 0;
  std::vector<std::pair<std::shared_ptr<IbDevice>, std::shared_ptr<IbMemory>>> registered_;
};

}  // namespace ccl::detail
