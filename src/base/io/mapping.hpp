#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <utility>

#include "base/io/fd.hpp"

namespace ccl::detail {

/// Owner of a memory mapping. Fresh memory is zero: no slot carries a flag and no step is posted.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : base_{std::exchange(other.base_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)} {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  static Result<Mapping> anonymous(std::size_t bytes);
  /// Maps `fd`, shared with all processes that map it.
  static Result<Mapping> of(const Fd& fd, std::size_t bytes);
  std::byte* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Mapping(std::byte* base, std::size_t bytes) : base_{base}, bytes_{bytes} {}
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Makes `bytes` bytes of zeroed memory. Every process with the descriptor can map it, none can
/// resize it. `name` appears in /proc.
Result<Fd> shareable_memory(const char* name, std::size_t bytes);

/// True if `fd` is memory of `shareable_memory` with `bytes` bytes. The owner of any other file can
/// shorten it, and an access beyond its end kills the process.
bool keeps_size(const Fd& fd, std::size_t bytes);

}  // namespace ccl::detail
