// Shares and messages of the exchange by public words, from an end that does not know the words.
#include "fuzz/fuzz.hpp"
#include "net/crypto/handshake.hpp"
#include "net/crypto/secret.hpp"
#include "net/crypto/sodium.hpp"

namespace ccl::fuzz {

using namespace detail::net;

namespace {

const Secret words = secret_of_words("public words"), others = secret_of_words("other words");

Greeting greeting_of(const CpaceShare& share, const HandshakeNonce& nonce) {
  Greeting greeting;
  greeting.terms.mode = ProofMode::exchange;
  greeting.nonce = nonce;
  greeting.share = share.share;
  return greeting;
}

}  // namespace

void prepare() {
  if (has_sodium()) return;
  std::fprintf(stderr, "SKIP: no libsodium\n");
  std::exit(77);
}

void read(Input input) {
  Source source{input};
  const bool listens = source.take<std::uint8_t>() % 2 != 0;
  const auto nonce = source.take<HandshakeNonce>();
  const CpaceShare mine = handshake_share(words, ProofMode::exchange, nonce);
  // The other end's share: any bytes, or a point of other words.
  const bool point = source.take<std::uint8_t>() % 4 == 0;
  const CpaceShare theirs = handshake_share(others, ProofMode::exchange, nonce);
  auto claim = source.take<Claim>();
  Greeting greeting = greeting_of(mine, nonce);
  if (listens) {
    if (point) claim.share = theirs.share;
  } else {
    greeting = point ? greeting_of(theirs, nonce) : source.take<Greeting>();
    greeting.terms.mode = ProofMode::exchange;
    claim.share = mine.share;
  }
  const Bytes hello = source.rest();
  const auto side = listens ? HandshakeSide::listener : HandshakeSide::caller;
  const auto keys = handshake_keys(words, side, mine, greeting, claim, hello);
  if (!keys) return demand(!point, "a valid share is refused");
  const auto attacker =
      handshake_keys(others, listens ? HandshakeSide::caller : HandshakeSide::listener, theirs,
                     greeting, claim, hello);
  if (!point || !attacker) return;
  demand(attacker->caller_tag != keys->caller_tag, "other words give the caller's tag");
  demand(attacker->listener_tag != keys->listener_tag, "other words give the listener's tag");
}

std::vector<std::string> seeds() {
  Claim claim;
  claim.terms.mode = ProofMode::exchange;
  claim.hello_bytes = 3;
  const HandshakeNonce nonce{};
  const auto at = [](bool listens, bool point) {
    return std::string{char(listens ? 1 : 0)} + std::string(sizeof(HandshakeNonce), 'n') +
           std::string{char(point ? 0 : 1)};
  };
  Claim identity = claim;
  identity.share = {};
  return {at(true, true) + bytes_of(claim) + "abc", at(false, true) + bytes_of(claim) + "abc",
          at(true, false) + bytes_of(identity) + "abc",
          at(false, false) + bytes_of(claim, greeting_of({}, nonce)) + "abc"};
}

}  // namespace ccl::fuzz
