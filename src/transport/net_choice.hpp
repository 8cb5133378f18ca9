#pragma once

#include <ccl/types/peer_info.hpp>
#include <ccl/types/result.hpp>

#include <string>

namespace ccl::detail {

/// Why the settings exclude the network `name` ("ib" or "socket") between two ranks: this process's
/// CCL_NET names the other one, or a rank's settings ask for a network plug-in. Empty: they do not.
Result<std::string> net_excludes(const char* name, const PeerInfo& from, const PeerInfo& to);

}  // namespace ccl::detail
