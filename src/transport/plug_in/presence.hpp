#pragma once

#include <ccl/types/result.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "transport/plug_in/net_plug_in.hpp"

namespace ccl::detail {

/// Reason why a rank has no network plug-in. Travels in PeerInfo.
enum class NetPlugInAbsence : int {
  none,        // it has one
  not_asked,   // no setting asks for one
  not_chosen,  // CCL_NET is IB or Socket
  not_found    // no library has one that works
};

/// Network plug-in of this process, as the settings are now.
struct NetPlugInPresence {
  std::shared_ptr<const NetPlugIn> plug_in;  // null: none
  std::uint64_t id = 0;                      // hash of its name; 0: none
  bool only = false;                         // a setting asks for it: it is the only network
  NetPlugInAbsence absence = NetPlugInAbsence::none;
};

/// Finds the network plug-in. Looks once for each value of CCL_NET and CCL_NET_PLUGIN, within the
/// limit of creation. Fails if CCL_NET names a network that this process does not have.
Result<NetPlugInPresence> net_plug_in_presence();

/// Name of the network plug-in of this process; "plugin" if there is none.
std::string net_plug_in_name();

/// Makes this process look for libnccl-net.so without being asked, as programs for NCCL expect.
void look_for_default_net_plug_in();

}  // namespace ccl::detail
