#pragma once

#include <cstddef>
#include <utility>

#include "gpu/driver.hpp"

namespace ccl::detail {

/// Pinned host memory that every device can address. Used memory is kept for the next request of
/// its size. Freeing it would wait for all kernels of the context, the program's included, and
/// would block launches of all threads meanwhile.
class Pinned {
 public:
  Pinned() = default;
  /// Takes zeroed memory in the calling thread's context.
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
  unsigned long long context_ = 0;  // CUDA's number: the memory is freed with its context
};

}  // namespace ccl::detail
