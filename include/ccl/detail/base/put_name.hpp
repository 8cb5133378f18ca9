#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ccl::detail {

/// Copies `name` to a field of a description that ranks compare, and ends it with a zero. A name
/// that is too long ends with a hash of all of it, so that names which begin alike stay different.
template <std::size_t n>
constexpr void put_name(char (&field)[n], std::string_view name) {
  constexpr std::size_t digits = 8;
  static_assert(n >= 2 * digits);
  const bool fits = name.size() < n;
  std::size_t at = fits ? name.size() : n - 2 - digits;
  name.copy(field, at);
  if (!fits) {
    std::uint32_t hash = 2166136261;  // FNV-1a
    for (const char c : name) hash = (hash ^ std::uint8_t(c)) * 16777619;
    field[at++] = '~';
    for (std::size_t i = 0; i < digits; ++i) {
      field[at++] = "0123456789abcdef"[hash >> (4 * (digits - 1 - i)) & 15];
    }
  }
  field[at] = 0;
}

}  // namespace ccl::detail
