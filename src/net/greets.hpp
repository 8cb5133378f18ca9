#pragma once

#include "net/crypto/secret.hpp"
#include "net/socket.hpp"

namespace ccl::detail::net {

/// Returns false if a connection to the listener is open and no greeting arrives: its process is
/// stopped, or its host is cut off. The listener counts this caller as one that gave up.
bool greets(const Address& where, const Secret& secret, const Deadline& deadline);

}  // namespace ccl::detail::net
