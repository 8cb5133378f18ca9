#pragma once

#include <ccl/comm/window.hpp>

#include <memory>
#include <utility>

#include "nccl/abi/device_layouts.hpp"
#include "nccl/device/flat_range.hpp"
#include "nccl/device/kernel_slot.hpp"

namespace ccl::detail::nccl {

/// Window of a GPU rank as kernels with NVIDIA's headers use it: all ranks' memory in one range of
/// addresses, and a structure in GPU memory that describes it. All ranks are one LSA team.
class KernelWindow {
 public:
  /// Maps the memory of `window` a second time. `flags` are those of NCCL. Local; fails with
  /// `Errc::not_supported`, equally on all ranks, if the memory cannot be mapped so.
  static Result<std::unique_ptr<KernelWindow>> create(const Window& window, int flags);

  /// Address of the structure, which is in GPU memory.
  ncclWindow_t handle() const { return reinterpret_cast<ncclWindow_t>(slot_->at()); }
  /// Copy of the structure.
  const ncclWindow_vidmem& content() const { return content_; }

 private:
  KernelWindow(std::unique_ptr<FlatRange> range, std::unique_ptr<KernelSlot> slot)
      : range_{std::move(range)}, slot_{std::move(slot)} {}
  std::unique_ptr<FlatRange> range_;
  std::unique_ptr<KernelSlot> slot_;
  ncclWindow_vidmem content_{};
};

}  // namespace ccl::detail::nccl
