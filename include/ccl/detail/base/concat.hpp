#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace ccl::detail {

/// Returns the texts one after another. Headers use it, because fmt costs 10,000 lines.
inline std::string concat(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) all += part;
  return all;
}

}  // namespace ccl::detail
