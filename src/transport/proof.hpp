#pragma once

#include <ccl/transport/transport.hpp>

#include <array>
#include <cstddef>

namespace ccl::detail {

using Nonce = std::array<std::byte, 16>;
using Proof = std::array<std::byte, 16>;

/// What a connection says first: that it comes from the peer that was told `nonce` in a handshake
/// and knows the communicator's secret. `index` tells the sockets of an edge apart, so that no
/// proof is worth anything twice.
Proof proof_of(const TransportContext& context, const Nonce& nonce, unsigned long long edge_id,
               unsigned index);

}  // namespace ccl::detail
