#pragma once

#include <set>
#include <string>
#include <vector>

#include "options.hpp"

namespace ccl::perf {

// Values of options from their text. Text that is no value ends the program.

/// Ends the program with an error that names the problem.
[[noreturn]] void refuse(const std::string& what);

std::string lower(std::string text);

/// Parses a size such as "8", "64K", "4M" or "1G".
Index parse_bytes(const std::string& text, const char* option);

/// Returns the name in the table that `text` matches, without regard to case, '_' and '-'.
std::string find_name(const std::set<std::string>& names, const std::string& text,
                      const char* what);

std::vector<DataType> parse_types(const std::string& text, bool reduces);
std::vector<RedOp> parse_redops(const std::string& text, DataType type);
std::vector<std::string> parse_modes(const std::string& text);
std::vector<int> parse_ctas(const std::string& text);

}  // namespace ccl::perf
