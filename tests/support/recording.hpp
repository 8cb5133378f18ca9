#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "net/crypto/handshake.hpp"

namespace ccl::test {

/// Handshake as an eavesdropper has it.
struct Recording {
  detail::net::Greeting greeting;
  detail::net::Claim claim;
  std::vector<std::byte> hello;
  detail::net::Digest caller_tag, listener_tag;

  /// Returns nothing if the bytes of an end are not those of a whole handshake.
  static std::optional<Recording> of(std::span<const std::byte> by_caller,
                                     std::span<const std::byte> by_listener) {
    Recording r;
    const auto take = [](std::span<const std::byte>& from, auto& to) {
      if (from.size() < sizeof to) return false;
      std::memcpy(static_cast<void*>(&to), from.data(), sizeof to);
      from = from.subspan(sizeof to);
      return true;
    };
    if (!take(by_listener, r.greeting) || !take(by_listener, r.listener_tag)) return {};
    if (!take(by_caller, r.claim) || by_caller.size() < r.claim.hello_bytes) return {};
    r.hello.assign(by_caller.begin(), by_caller.begin() + r.claim.hello_bytes);
    by_caller = by_caller.subspan(r.claim.hello_bytes);
    if (!take(by_caller, r.caller_tag)) return {};
    return r;
  }

  /// Returns the number of tags that a guessed secret explains. With CPace, the attacker lacks both
  /// scalars: a scalar of its own is the best that it has.
  int fitting_tags(const detail::net::Secret& guess) const {
    using detail::net::HandshakeSide;
    const auto mine = handshake_share(guess, greeting.terms.mode, greeting.nonce);
    int fitting = 0;
    for (const auto side : {HandshakeSide::caller, HandshakeSide::listener}) {
      const auto keys = handshake_keys(guess, side, mine, greeting, claim, hello);
      fitting += keys && (keys->caller_tag == caller_tag || keys->listener_tag == listener_tag);
    }
    return fitting;
  }
};

}  // namespace ccl::test
