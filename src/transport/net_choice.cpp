#include "transport/net_choice.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include "base/text.hpp"

namespace ccl::detail {

Result<std::string> net_excludes(const char* name, const PeerInfo& from, const PeerInfo& to) {
  CCL_TRY(const std::string given, setting_text("NET"));
  const std::string set = lower(given);
  if ((set == "ib" || set == "socket") && set != name) return fmt::format("CCL_NET is {}", given);
  for (const PeerInfo* rank : {&from, &to}) {
    if (rank->net_plug_in_only == 0) continue;
    return fmt::format(
        "the settings of rank {} on {} choose a network plug-in, by CCL_NET or CCL_NET_PLUGIN",
        rank->rank, rank->host);
  }
  return std::string{};
}

}  // namespace ccl::detail
