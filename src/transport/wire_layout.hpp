#pragma once

#include <ccl/types/result.hpp>
#include <ccl/transport/transport.hpp>
#include <ccl/types/wire.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.hpp"

namespace ccl::detail {

/// Owns a mapping. Fresh memory is zero: no slot carries a flag and no step is posted.
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
  /// Shared with everyone who maps `fd`.
  static Result<Mapping> of(const Fd& fd, std::size_t bytes);
  std::byte* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Mapping(std::byte* base, std::size_t bytes) : base_{base}, bytes_{bytes} {}
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Memory of `bytes`, zero, that whoever gets the descriptor can map, and nobody can resize.
/// `name`: for /proc.
Result<Fd> shareable_memory(const char* name, std::size_t bytes);

/// Where the wires of a connection lie in one block of memory. Per channel: posted, drained, sent,
/// received on a line each (their writers differ), the sizes, then the slots from a new page on.
class WireLayout {
 public:
  /// Refuses shapes that no wire can have. `slots`: where those of all channels lie, if not in the
  /// same block.
  static Result<WireLayout> of(const WireShape& shape, std::byte* slots = nullptr);
  std::size_t bytes() const { return std::size_t(shape_.channels) * channel_bytes_; }
  std::vector<Wire> wires(std::byte* base, EdgeSide side, bool proxied) const;

 private:
  WireShape shape_;
  std::byte* slots_ = nullptr;
  std::size_t head_bytes_ = 0, channel_bytes_ = 0;
};

/// An error that names both ends of `edge`.
Error edge_error(const Edge& edge, const char* transport, Errc code, std::string what,
                 int os_code = 0);
/// Says that the other end of `edge` was made with another shape.
std::string differing_shapes(const Edge& edge, const WireShape& theirs);
/// Fills `bytes` from the kernel's generator.
Result<void> fill_random(void* to, std::size_t bytes);

/// Reads and writes the fields of a handshake one after the other.
class HandshakeCursor {
 public:
  template <class T>
  void put(Handshake& to, const T& value) {
    std::copy_n(reinterpret_cast<const std::byte*>(&value), sizeof(T), to.data() + step(sizeof(T)));
  }
  template <class T>
  T get(const Handshake& from) {
    T value;
    std::copy_n(from.data() + step(sizeof(T)), sizeof(T), reinterpret_cast<std::byte*>(&value));
    return value;
  }

 private:
  std::size_t step(std::size_t bytes) { return std::exchange(at_, at_ + bytes); }
  std::size_t at_ = 0;
};

}  // namespace ccl::detail
