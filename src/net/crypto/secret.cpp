#include "net/crypto/secret.hpp"

#include <algorithm>

namespace ccl::detail::net {
namespace {

constexpr std::byte guessable_bit{0x80};

Secret secret_of_digest(const Digest& digest, bool guessable) {
  Secret out;
  std::copy_n(digest.begin(), out.size(), out.begin());
  out.back() &= ~guessable_bit;
  if (guessable) out.back() |= guessable_bit;
  return out;
}

}  // namespace

bool is_guessable(const Secret& secret) {
  return (secret.back() & guessable_bit) != std::byte{0};
}

Secret random_secret() {
  Digest digest;
  fill_random(digest);
  return secret_of_digest(digest, false);
}

Secret secret_of_text(Bytes text) {
  return secret_of_digest(sha256(text), false);
}

Secret secret_of_words(std::string_view words) {
  return secret_of_digest(sha256(std::as_bytes(std::span{words.data(), words.size()})), true);
}

Secret derived_secret(const Secret& parent, Bytes text) {
  return secret_of_digest(hmac_sha256(parent, text), is_guessable(parent));
}

}  // namespace ccl::detail::net
