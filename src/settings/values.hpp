#pragma once

#include <ccl/detail/runtime/settings.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace ccl::detail {

/// Whether a value is one that the setting takes, and which those are.
bool fits(const Setting& setting, const std::string& value);
std::string valid_values(const Setting& setting);

/// Empty where the whole text is no such value.
std::optional<Index> parse_integer(std::string_view text);
std::optional<Index> parse_bytes(std::string_view text);
std::optional<double> parse_seconds(const std::string& text);

}  // namespace ccl::detail
