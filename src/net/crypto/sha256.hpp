#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace ccl::detail::net {

using Digest = std::array<std::byte, 32>;
using Secret = std::array<std::byte, 16>;
using Bytes = std::span<const std::byte>;

/// SHA-256 (FIPS 180-4).
Digest sha256(Bytes data);
/// HMAC-SHA256 (RFC 2104).
Digest hmac_sha256(Bytes key, Bytes data);
/// True if equal. The time does not depend on where they differ.
bool same_digest(const Digest& a, const Digest& b);
/// Fills `out` from the kernel's random generator.
void fill_random(std::span<std::byte> out);

}  // namespace ccl::detail::net
