#pragma once

#include <ccl/types/word.hpp>

#include <cstdint>
#include <memory>

#include "proxy/transfer_listener.hpp"
#include "transport/plug_in/net_abi.hpp"

namespace ccl::detail {

/// Step of a message, as a network plug-in gets it with the message for events of its own. It stays
/// until the message is done.
struct NetStep {
  std::weak_ptr<LineListener> line;
  Word step = 0;
};

/// The callback of network plug-ins, from any thread: begins, updates and ends events of a plug-in
/// below `parent`, a `NetStep` or null. `event` names one; null after a begin: nobody wants it.
net_abi::Result report_net_event(void** event, int type, void* parent, std::int64_t kind,
                                 void* data);

}  // namespace ccl::detail
