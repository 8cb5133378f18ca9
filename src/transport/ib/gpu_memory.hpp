#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "transport/ib/device.hpp"

namespace ccl::detail {

class GpuArena;

/// How RDMA devices reach memory of a GPU. None of it has been run on hardware.
enum class GpuReach {
  none,        // slots lie in pinned memory of the host, and the GPU reads and writes them there
  dma_buf,     // a descriptor that the GPU's driver exports and the device's imports
  peer_memory  // the module nvidia-peermem: devices register GPU addresses as if they were memory
};

/// Memory of a GPU, kept alive by `owner`; addresses are the GPU's.
struct GpuPiece {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<void> owner;
};

/// What the machine offers beside the verbs. Tests replace it: they have neither GPU nor module.
struct GpuCalls {
  /// Zeroed whole pages.
  Result<GpuPiece> (*allocate)(GpuArena* arena, std::size_t bytes);
  Result<Fd> (*export_dma_buf)(GpuArena* arena, const GpuPiece& piece);
  bool (*has_peer_memory)();
  bool (*has_gdrcopy)();
};
const GpuCalls& gpu_calls();
/// Null: the machine's own again.
void use_gpu_calls(const GpuCalls* instead);
/// Whether there are GPU ranks' slots to think about: a GPU, or calls that stand for one.
bool may_use_gpu_memory(const GpuArena* arena);

/// Whether `root`/sys says that nvidia-peermem, or its forerunner, is there.
bool finds_peer_memory(const std::string& root);

/// Slots in GPU memory, registered with every device of the ports.
class IbGpuSlots {
 public:
  /// What the GPU's driver and all devices can do, tried on this memory: DMA-BUF (unless
  /// CCL_DMABUF_ENABLE is 0), then nvidia-peermem. Null, with `why`, if neither works: stage.
  static Result<std::unique_ptr<IbGpuSlots>> make(GpuArena* arena, std::size_t bytes,
                                                  const std::vector<IbPort>& ports, unsigned access,
                                                  std::string& why);
  std::byte* base() const { return piece_.base; }
  GpuReach scope() const { return reach_; }
  /// The registration with a device; a device that has come since is tried now.
  Result<std::shared_ptr<IbMemory>> with(const std::shared_ptr<IbDevice>& device);

 private:
  GpuPiece piece_;
  Fd dma_buf_;
  GpuReach reach_ = GpuReach::none;
  unsigned access_ = 0;
  std::vector<std::pair<std::shared_ptr<IbDevice>, std::shared_ptr<IbMemory>>> registered_;
};

}  // namespace ccl::detail
