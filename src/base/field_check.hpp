#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace ccl::detail {

/// Checks of the fields of a message from another process, made before the message is used. Keeps
/// the first field that does not fit: its name, its value and the values that would.
class FieldCheck {
 public:
  /// `value` must be from `low` to `high`.
  template <std::integral T>
  FieldCheck& in_range(std::string_view field, T value, std::int64_t low, std::int64_t high) {
    if (std::cmp_greater_equal(value, low) && std::cmp_less_equal(value, high)) return *this;
    return low == high
               ? refuse(fmt::format("{} is {}, not {}", field, value, low))
               : refuse(fmt::format("{} is {}, not from {} to {}", field, value, low, high));
  }
  /// An integer that stands for a bool must be 0 or 1.
  FieldCheck& flag(std::string_view field, std::int64_t value) {
    return in_range(field, value, 0, 1);
  }
  /// A text must end inside of its array.
  template <std::size_t Size>
  FieldCheck& text(std::string_view field, const char (&array)[Size]) {
    if (std::memchr(array, 0, Size) != nullptr) return *this;
    return refuse(fmt::format("{} has no end within its {} bytes", field, Size));
  }
  FieldCheck& require(bool fits, std::string_view why) {
    return fits ? *this : refuse(std::string{why});
  }
  /// Adds the result of another check of a part of the message.
  FieldCheck& part(std::string_view field, const std::string& why) {
    return why.empty() ? *this : refuse(fmt::format("{}: {}", field, why));
  }

  bool good() const { return why_.empty(); }
  /// Returns what does not fit, or an empty text.
  const std::string& why() const { return why_; }

 private:
  FieldCheck& refuse(std::string why) {
    if (why_.empty()) why_ = std::move(why);
    return *this;
  }
  std::string why_;
};

}  // namespace ccl::detail
