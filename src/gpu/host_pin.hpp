#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "gpu/gpu.hpp"

namespace ccl::detail {

/// Host memory that a GPU reads and writes in place. Owns the registration, not the memory: it goes
/// before that does, and after the last kernel that uses it.
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

  /// `at`: of any mapping, shared or private; its pages come to be there now.
  static Result<HostPin> make(std::shared_ptr<Gpu> gpu, std::byte* at, std::size_t bytes);
  /// Where the GPU finds it.
  std::byte* on_device() const { return there_; }

 private:
  std::shared_ptr<Gpu> gpu_;
  std::byte* here_ = nullptr;
  std::byte* there_ = nullptr;
};

}  // namespace ccl::detail
