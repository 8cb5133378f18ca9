#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <memory>

#include "gpu/gpu.hpp"

namespace ccl::detail::nccl {

/// Small memory of a GPU for a structure that kernels of the program read. It belongs to the
/// process, so it does not rest. Its address is a handle of the program: after the end of the slot
/// at least a thousand others are taken before it is used again.
class KernelSlot {
 public:
  static constexpr std::size_t bytes = 1024;

  static Result<std::unique_ptr<KernelSlot>> take(int device);
  ~KernelSlot();
  KernelSlot(const KernelSlot&) = delete;
  KernelSlot& operator=(const KernelSlot&) = delete;

  std::byte* at() const { return at_; }
  /// Copies from host memory. Work that is queued later sees it.
  Result<void> write(std::size_t offset, const void* from, std::size_t count) const;

 private:
  KernelSlot(std::shared_ptr<Gpu> gpu, std::byte* at) : gpu_{std::move(gpu)}, at_{at} {}
  std::shared_ptr<Gpu> gpu_;
  std::byte* at_;
};

}  // namespace ccl::detail::nccl
