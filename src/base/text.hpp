#pragma once

#include <charconv>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

// Letters and numbers of settings and system files, independent of the program's locale. In a
// Turkish locale `std::toupper('i')` is no I, and in a German one `std::strtod` stops at the point
// of "2.5".
namespace ccl::detail {

constexpr char upper(char c) {
  return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c;
}
constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
}
inline std::string upper(std::string_view text) {
  std::string out{text};
  for (char& c : out) c = upper(c);
  return out;
}
inline std::string lower(std::string_view text) {
  std::string out{text};
  for (char& c : out) c = lower(c);
  return out;
}
/// Name without case, `_` and spaces, which do not matter in ccl's names.
inline std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_' && c != ' ') out += lower(c);
  }
  return out;
}

/// Number at the start of a text, after spaces, as `strtod` reads it in the locale "C".
struct LeadingNumber {
  double value = 0;
  std::size_t size = 0;  // length up to its end; 0: there is no number
};
inline LeadingNumber leading_number(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty() && (rest[0] == ' ' || (rest[0] >= '\t' && rest[0] <= '\r'))) {
    rest.remove_prefix(1);
  }
  const bool minus = rest.starts_with('-');
  if (minus || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.starts_with('-')) return {};  // from_chars would accept it
  const bool hex = rest.size() > 2 && rest[0] == '0' && lower(rest[1]) == 'x';
  double value = 0;
  auto read = std::from_chars(rest.data() + (hex ? 2 : 0), rest.data() + rest.size(), value,
                              hex ? std::chars_format::hex : std::chars_format::general);
  if (hex && read.ec == std::errc::invalid_argument) {
    read = std::from_chars(rest.data(), rest.data() + 1, value);  // the 0 before an x
  }
  if (read.ec == std::errc::invalid_argument) return {};
  if (read.ec != std::errc{}) {  // too large or too small: the exponent's sign decides
    const std::string_view number{rest.data(), std::size_t(read.ptr - rest.data())};
    value = number.find('-') == number.npos ? std::numeric_limits<double>::infinity() : 0;
  }
  return {minus ? -value : value, std::size_t(read.ptr - text.data())};
}

}  // namespace ccl::detail
