#include "transport/net_choice.hpp"

#include <ccl/settings.hpp>

#include <algorithm>
#include <cctype>

namespace ccl::detail {

Result<bool> net_allows(const char* name) {
  CCL_TRY(std::string set, setting_text("NET"));
  std::transform(set.begin(), set.end(), set.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  return (set != "ib" && set != "socket") || set == name;
}

}  // namespace ccl::detail
