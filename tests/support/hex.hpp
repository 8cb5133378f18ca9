#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ccl::test {

inline std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += digits[std::to_integer<std::size_t>(b >> 4)];
    out += digits[std::to_integer<std::size_t>(b & std::byte{15})];
  }
  return out;
}

/// Bytes of hexadecimal digits. Other characters do not count.
inline std::vector<std::byte> from_hex(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::vector<std::byte> out;
  bool high = true;
  for (const char c : text) {
    const std::size_t value = digits.find(c);
    if (value == digits.npos) continue;
    if (high) {
      out.push_back(std::byte(value << 4));
    } else {
      out.back() |= std::byte(value);
    }
    high = !high;
  }
  return out;
}

template <std::size_t N>
std::array<std::byte, N> array_of_hex(std::string_view text) {
  const auto bytes = from_hex(text);
  std::array<std::byte, N> out{};
  for (std::size_t i = 0; i < N && i < bytes.size(); ++i) out[i] = bytes[i];
  return out;
}

inline std::span<const std::byte> text_bytes(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

}  // namespace ccl::test
