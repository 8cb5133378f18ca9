#pragma once

#include <ccl/transport/transport.hpp>

#include <array>
#include <cstddef>

namespace ccl::detail {

using Nonce = std::array<std::byte, 16>;
using Proof = std::array<std::byte, 16>;

/// First message of a connection. It proves that the sender has received `nonce` in a handshake and
/// knows the communicator's secret. `index` distinguishes the sockets of an edge, so no proof
/// serves twice.
Proof proof_of(const TransportContext& context, const Nonce& nonce, unsigned long long edge_id,
               unsigned index);

}  // namespace ccl::detail
