#pragma once

#include <cstddef>
#include <utility>

#include "gpu/driver.hpp"

namespace ccl::detail {

/// Pinned host memory that every device can address. What is done with is kept for the next one of
/// its size: freeing it would wait for all kernels of the context, those of the program, too, and
/// keep all threads from launching meanwhile.
class Pinned {
 public:
  Pinned() = default;
  /// In the calling thread's context, zeroed.
  static Result<Pinned> take(const CudaDriver& cuda, std::size_t bytes);
  Pinned(Pinned&& other) noexcept
      : at_{std::exchange(other.at_, nullptr)}, bytes_{other.bytes_}, context_{other.context_} {}
  Pinned& operator=(Pinned&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
    std::swap(context_, other.context_);
    return *this;
  }
  ~Pinned();

  void* at() const { return at_; }

 private:
  void* at_ = nullptr;
  std::size_t bytes_ = 0;
  unsigned long long context_ = 0;  // CUDA's number: with its context the memory goes
};

}  // namespace ccl::detail
