#pragma once

#include <cstddef>
#include <span>

#include "net/address.hpp"
#include "net/crypto/secret.hpp"

namespace ccl::detail::net {

/// Returns the number of listeners at the front of `in_order` that have ended: for 0.5 s nobody
/// listens at their addresses. It asks them together, so many take as long as one. It returns at
/// once if somebody listens at the first address. A listener that takes the call counts this caller
/// as one that gave up.
///
/// An address that neither refuses nor answers within 0.5 s has not ended.
std::size_t ended_listeners(std::span<const Address> in_order, const Secret& secret);

}  // namespace ccl::detail::net
