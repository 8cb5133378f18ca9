#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/io/fd.hpp"

namespace ccl::detail {

class GpuArena;

/// Memory of a GPU, kept alive by `owner`; addresses are the GPU's.
struct GpuPiece {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<void> owner;
  bool on_loan = false;  // of a GPU that this process does not see
};

/// Calls of the machine beside those of a network. Tests replace them, having neither GPU nor
/// module.
struct GpuCalls {
  /// Allocates zeroed whole pages on the rank's GPU or, if `relay` is not -1, on the GPU with that
  /// bus id.
  Result<GpuPiece> (*allocate)(GpuArena* arena, std::int64_t relay, std::size_t bytes);
  Result<Fd> (*export_dma_buf)(GpuArena* arena, const GpuPiece& piece);
  bool (*has_peer_memory)();
  bool (*has_gdrcopy)();
};
const GpuCalls& gpu_calls();
/// Replaces the calls; null restores the machine's own.
void use_gpu_calls(const GpuCalls* instead);
/// True if GPU ranks' slots are possible: there is a GPU, or calls that replace one.
bool may_use_gpu_memory(const GpuArena* arena);

/// True if `root`/sys lists nvidia-peermem or its predecessor.
bool finds_peer_memory(const std::string& root);

}  // namespace ccl::detail
