#pragma once

#include <ccl/detail/runtime/connections.hpp>

#include <map>

namespace ccl::detail {

struct Connections::ChannelUses : std::map<int, topo::EdgeUse> {};

}  // namespace ccl::detail
