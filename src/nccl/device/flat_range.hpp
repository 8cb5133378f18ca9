#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/memory.hpp"

namespace ccl::detail::nccl {

/// Memory of several ranks in one range of addresses of a GPU, at equal distances. Kernels compute
/// a rank's address as `base() + rank * stride() + offset`.
class FlatRange {
 public:
  /// `stride` is a multiple of this many bytes: kernels add to the upper half of an address.
  static constexpr std::size_t stride_unit = std::size_t{1} << 32;

  /// Maps `blocks`, one of each rank, a second time. The range keeps the memory, which does not
  /// rest from then on. Fails with `Errc::not_supported` if
  /// - a block has no cuMem handle,
  /// - the blocks begin at different offsets from the begin of a page.
  static Result<std::unique_ptr<FlatRange>> map(std::shared_ptr<Gpu> gpu,
                                                std::vector<GpuBlock> blocks);
  ~FlatRange();
  FlatRange(const FlatRange&) = delete;
  FlatRange& operator=(const FlatRange&) = delete;

  /// Begin of the first block.
  std::byte* base() const { return base_; }
  std::size_t stride() const { return stride_; }  // bytes

 private:
  FlatRange(std::shared_ptr<Gpu> gpu, std::vector<GpuBlock> blocks)
      : gpu_{std::move(gpu)}, blocks_{std::move(blocks)} {}
  Result<void> measure();
  Result<void> map_all();
  std::size_t bytes() const { return stride_ * blocks_.size(); }
  CUdeviceptr place(std::size_t block) const;  // of its memory

  std::shared_ptr<Gpu> gpu_;
  std::vector<GpuBlock> blocks_;
  std::size_t before_ = 0;  // bytes of memory before a block, at most
  std::size_t stride_ = 0;
  CUdeviceptr range_ = 0;
  std::size_t mapped_ = 0;  // number of blocks
  std::byte* base_ = nullptr;
};

}  // namespace ccl::detail::nccl
