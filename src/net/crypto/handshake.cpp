#include "net/crypto/handshake.hpp"

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "net/crypto/secret.hpp"
#include "net/crypto/sodium.hpp"

namespace ccl::detail::net {

static_assert(sizeof(Greeting) == 56 && sizeof(Claim) == 60, "they travel as bytes");

namespace {

constexpr std::string_view channel = "ccl";

void append_bytes(std::vector<std::byte>& out, Bytes more) {
  out.insert(out.end(), more.begin(), more.end());
}
Bytes bytes_of_label(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}
/// Bytes of a message before its share, which comes last.
template <class Message>
Bytes without_share(const Message& message) {
  return std::as_bytes(std::span{&message, 1}).first(sizeof message - sizeof message.share);
}

Digest keyed(Bytes key, std::string_view label, Bytes transcript) {
  std::vector<std::byte> text;
  append_bytes(text, bytes_of_label(label));
  append_bytes(text, transcript);
  return hmac_sha256(key, text);
}

/// The two ends' common key: the secret, or what CPace makes of it.
std::optional<std::vector<std::byte>> common_key(const Secret& secret, HandshakeSide side,
                                                 const CpaceShare& mine, const Greeting& greeting,
                                                 const Claim& claim, Bytes hello) {
  if (greeting.terms.mode == ProofMode::hmac) return std::vector(secret.begin(), secret.end());
  const Share& theirs = side == HandshakeSide::listener ? claim.share : greeting.share;
  std::vector<std::byte> of_caller;
  append_bytes(of_caller, without_share(claim));
  append_bytes(of_caller, hello);
  const auto key = cpace_key(mine, theirs, greeting.nonce,
                             {greeting.share, without_share(greeting)}, {claim.share, of_caller});
  if (!key) return {};
  return std::vector(key->begin(), key->end());
}

}  // namespace

std::string_view name(ProofMode mode) {
  return mode == ProofMode::hmac ? "an HMAC of the secret" : "a password-authenticated exchange";
}

Result<Terms> Terms::own(const Secret& secret) {
  Terms terms;
  CCL_TRY(terms.encryption, wanted_encryption());
  if (is_guessable(secret) && has_sodium()) terms.mode = ProofMode::exchange;
  terms.aes = std::uint8_t(has_aes());
  return terms;
}

CpaceShare handshake_share(const Secret& secret, ProofMode mode, const HandshakeNonce& listener) {
  if (mode == ProofMode::hmac) return {};
  return CpaceShare::make(cpace_generator(secret, bytes_of_label(channel), listener));
}

std::optional<HandshakeKeys> handshake_keys(const Secret& secret, HandshakeSide side,
                                            const CpaceShare& mine, const Greeting& greeting,
                                            const Claim& claim, Bytes hello) {
  auto key = common_key(secret, side, mine, greeting, claim, hello);
  if (!key) return {};
  if (const auto own = key_in_use()) {
    const Digest both = hmac_sha256(*own, *key);
    key->assign(both.begin(), both.end());
  }
  std::vector<std::byte> transcript;
  append_bytes(transcript, std::as_bytes(std::span{&greeting, 1}));
  append_bytes(transcript, std::as_bytes(std::span{&claim, 1}));
  append_bytes(transcript, hello);
  HandshakeKeys out;
  out.caller_tag = keyed(*key, "caller", transcript);
  out.listener_tag = keyed(*key, "listener", transcript);
  out.session.encryption = greeting.terms.encryption;
  out.session.aes = greeting.terms.aes == 1 && claim.terms.aes == 1;
  const bool calls = side == HandshakeSide::caller;
  out.session.out = keyed(*key, calls ? "data of the caller" : "data of the listener", transcript);
  out.session.in = keyed(*key, calls ? "data of the listener" : "data of the caller", transcript);
  return out;
}

std::string differing_modes(ProofMode mine, ProofMode theirs) {
  return fmt::format(
      "this end proves the secret by {}, the other by {} (only one end has a secret, or, where it "
      "is made of public words, libsodium); give all ranks the same CCL_SECRET_FILE or CCL_SECRET, "
      "or install libsodium23 on all hosts",
      name(mine), name(theirs));
}

std::string differing_encryption(Encryption mine, Encryption theirs) {
  if (mine == theirs) return {};
  return fmt::format("CCL_ENCRYPTION is {} here and {} at the other end; give all ranks the same",
                     name(mine), name(theirs));
}

}  // namespace ccl::detail::net
