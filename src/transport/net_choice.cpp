#include "transport/net_choice.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include "base/text.hpp"

namespace ccl::detail {

Result<bool> net_allows(const char* name) {
  CCL_TRY(const std::string given, setting_text("NET"));
  const std::string set = lower(given);
  return (set != "ib" && set != "socket") || set == name;
}

}  // namespace ccl::detail
