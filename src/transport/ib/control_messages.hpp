#pragma once

#include <cstdint>

#include "transport/proxied/control_socket.hpp"

namespace ccl::detail {

/// Types of messages between the ends, beside their queue pairs.
enum class IbControlType : std::uint32_t {
  offer = 1,    // sender: its ports, and the address of its slot table
  plan,         // receiver: its ports, the queue pairs between them, steps received so far
  ready,        // sender: its queue pairs work
  go,           // receiver: its queue pairs work, too
  broken,       // receiver: queue pairs failed; make an offer
  rest,         // sender: idle after so many steps; receiver: it has them, and has no queue pairs
  refused,      // either end: it has failed; code, rank at fault or -1, text
  close_notify  // either end: closes without an error
};

/// Connection beside the queue pairs, which notice only when they send that a process has ended.
using IbControlSocket = ControlSocket<IbControlType>;
using IbMessage = IbControlSocket::Message;

}  // namespace ccl::detail
