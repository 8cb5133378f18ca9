#pragma once

#include <array>
#include <string_view>

// Symbols of the plug-ins that libraries of CCL_NET_PLUGIN have, newest version first. One library
// may have both kinds.
namespace ccl::detail {

constexpr std::array<std::string_view, 4> net_plug_in_symbols{
    "ncclNetPlugin_v12", "ncclNetPlugin_v11", "ncclNetPlugin_v10", "ncclNetPlugin_v9"};
constexpr std::array<std::string_view, 5> collnet_plug_in_symbols{
    "ncclCollNetPlugin_v12", "ncclCollNetPlugin_v11", "ncclCollNetPlugin_v10",
    "ncclCollNetPlugin_v9", "ncclCollNetPlugin_v8"};

}  // namespace ccl::detail
