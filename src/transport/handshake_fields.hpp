#pragma once

#include <ccl/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ccl::detail {

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
