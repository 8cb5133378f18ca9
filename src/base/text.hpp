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

/// True if the text is valid UTF-8, as JSON, XML and metrics must be.
inline bool is_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned first = byte(i);
    const std::size_t more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    if ((first >= 0x80 && first < 0xc2) || first > 0xf4 || text.size() - i <= more) return false;
    unsigned code = more == 0 ? first : first & (0x3fu >> more);
    for (std::size_t k = 1; k <= more; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
      code = code << 6 | (byte(i + k) & 0x3f);
    }
    const bool short_enough = more < 2 || code >= (more == 2 ? 0x800u : 0x10000u);
    if (!short_enough || (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff) return false;
    i += more + 1;
  }
  return true;
}

/// The first `most` bytes of a text, or fewer: a character of UTF-8 stays whole.
inline std::string_view shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  return text.substr(0, most);
}

/// Text of another process or of the user inside a line: its control characters, and all that is
/// not ASCII if it is not valid UTF-8, become '?'.
inline std::string on_one_line(std::string_view text) {
  const bool is_text = is_utf8(text);
  std::string out{text};
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !is_text)) c = '?';
  }
  return out;
}

/// Text of another process or of the user inside an error, on one line: what `on_one_line` replaces
/// becomes an escape such as "\x1b".
inline std::string printable(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  const std::string plain = on_one_line(text);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (plain[i] == text[i]) {
      out += text[i];
      continue;
    }
    const auto byte = static_cast<unsigned char>(text[i]);
    out += "\\x";
    out += digits[byte >> 4];
    out += digits[byte & 15];
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
