#pragma once

#include <array>
#include <optional>

#include "net/crypto/sha256.hpp"

namespace ccl::detail::net {

// CPace, a balanced password-authenticated key exchange, in its suite CPACE-RISTR255-SHA512 and its
// initiator-responder setting (draft-irtf-cfrg-cpace). A recorded exchange gives nothing by which a
// password could be checked. An active end can check one password with each exchange.
// All functions need libsodium: the caller checks `has_sodium()`.

/// Encoded point of ristretto255, or a scalar.
using Share = std::array<std::byte, 32>;
/// Key that both ends compute if their passwords are equal.
using ExchangedKey = std::array<std::byte, 64>;

/// Point that depends on the password, the channel identifier and the session id.
Share cpace_generator(Bytes password, Bytes channel, Bytes session);

/// One end's share: it sends `share` and keeps `scalar`.
struct CpaceShare {
  Share scalar{}, share{};
  static CpaceShare make(const Share& generator, const Share& scalar);
  /// With a random scalar.
  static CpaceShare make(const Share& generator);
};

/// Share and associated data of one end, as they were sent.
struct CpaceMessage {
  const Share& share;
  Bytes associated;
};

/// Computes the key of `mine` and of the share `theirs`. Returns nothing if `theirs` is not a valid
/// point, or if the product is the identity.
std::optional<ExchangedKey> cpace_key(const CpaceShare& mine, const Share& theirs, Bytes session,
                                      const CpaceMessage& initiator, const CpaceMessage& responder);

}  // namespace ccl::detail::net
