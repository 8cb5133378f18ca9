#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "net/crypto/cpace.hpp"
#include "net/crypto/encryption.hpp"
#include "net/crypto/sha256.hpp"

namespace ccl::detail::net {

// Both ends of every connection prove that they know the job's secret, without sending it. The
// listening side sends first:
//   greeting  terms and nonce of the listener, its share
//   claim     bytes of hello, terms and nonce of the caller, its share, hello, tag of the caller
//   answer    tag of the listener
// A tag is an HMAC of both messages and the hello. Its key is the secret, or with
// `ProofMode::exchange` the key of a CPace whose password is the secret. The hello is the purpose
// of the connection. It is authenticated, not encrypted.

constexpr Index max_hello_bytes = 1024;
constexpr std::array<char, 4> handshake_magic{'c', 'c', 'l', 2};
using HandshakeNonce = std::array<std::byte, 16>;

/// Way in which the ends prove the secret.
enum class ProofMode : std::uint8_t {
  hmac,     // from the secret: for random secrets, and for others where there is no libsodium
  exchange  // from a CPace: for secrets that can be guessed
};
/// Returns a noun phrase for errors.
std::string_view name(ProofMode mode);

/// Settings of one end. Each end decides alone and sends them; the tags cover them.
struct Terms {
  ProofMode mode = ProofMode::hmac;
  Encryption encryption = Encryption::off;
  std::uint8_t aes = 0;  // 1: `has_aes()`
  std::uint8_t reserved = 0;
  /// Terms of this process for this secret. Fails as `wanted_encryption` does.
  static Result<Terms> own(const Secret& secret);
};

struct Greeting {
  std::array<char, 4> magic = handshake_magic;
  Terms terms;
  HandshakeNonce nonce{};
  Share share{};  // zeros without CPace
};
struct Claim {
  static constexpr std::uint32_t gives_up = ~std::uint32_t{0};  // replaces a length
  std::array<char, 4> magic = handshake_magic;
  std::uint32_t hello_bytes = 0;
  Terms terms;
  HandshakeNonce nonce{};
  Share share{};
};

/// Result of a handshake at one end.
struct HandshakeKeys {
  Digest caller_tag{}, listener_tag{};
  SessionKeys session;  // of this end
};

enum class HandshakeSide { caller, listener };

/// Returns this end's share for the session that the listener's nonce names.
CpaceShare handshake_share(const Secret& secret, ProofMode mode, const HandshakeNonce& listener);
/// Computes tags and session keys. Returns nothing if the other end's share is invalid.
std::optional<HandshakeKeys> handshake_keys(const Secret& secret, HandshakeSide side,
                                            const CpaceShare& mine, const Greeting& greeting,
                                            const Claim& claim, Bytes hello);

/// Sentence about ends that prove the secret in different ways.
std::string differing_modes(ProofMode mine, ProofMode theirs);
/// Sentence about ends with different CCL_ENCRYPTION. Empty if they agree.
std::string differing_encryption(Encryption mine, Encryption theirs);

}  // namespace ccl::detail::net
