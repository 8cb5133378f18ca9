#pragma once

#include <ccl/detail/runtime/settings.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace ccl::detail {

/// Checks a value. The error lists the values that the setting accepts.
bool fits(const Setting& setting, const std::string& value);
std::string valid_values(const Setting& setting);

/// Returns nothing unless the whole text is an integer.
std::optional<Index> parse_integer(std::string_view text);
std::optional<Index> parse_bytes(std::string_view text);
std::optional<double> parse_seconds(const std::string& text);

}  // namespace ccl::detail
