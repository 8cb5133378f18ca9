#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "gpu/gpu.hpp"

namespace ccl::detail {

/// Registration of host memory that a GPU reads and writes in place. It does not own the memory. It
/// must end before the memory, and after the last kernel that uses it.
class HostPin {
 public:
  HostPin() = default;
  HostPin(HostPin&& other) noexcept { *this = std::move(other); }
  HostPin& operator=(HostPin&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(here_, other.here_);
    std::swap(there_, other.there_);
    return *this;
  }
  ~HostPin();

  /// Pins `at`, of any mapping, shared or private; its pages are populated.
  static Result<HostPin> make(std::shared_ptr<Gpu> gpu, std::byte* at, std::size_t bytes);
  /// Address of the memory for the GPU.
  std::byte* on_device() const { return there_; }

 private:
  std::shared_ptr<Gpu> gpu_;
  std::byte* here_ = nullptr;
  std::byte* there_ = nullptr;
};

}  // namespace ccl::detail
