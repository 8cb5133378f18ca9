#include "net/crypto/handshake.hpp"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "net/auth.hpp"
#include "net/crypto/sodium.hpp"
#include "support/catch.hpp"
#include "support/hex.hpp"
#include "support/recording.hpp"
#include "support/relay.hpp"
#include "support/skip.hpp"
#include <poll.h>
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::detail::net;
using namespace ccl::test;
using ccl::detail::Fd;

namespace {

using Wire = std::vector<std::byte>;

bool can_run() {
  if (has_sodium()) return true;
  skip(sodium_problem());
  return false;
}

/// CCL_ENCRYPTION during the object's lifetime.
struct Encrypted {
  explicit Encrypted(const char* value) { ::setenv("CCL_ENCRYPTION", value, 1); }
  ~Encrypted() { ::unsetenv("CCL_ENCRYPTION"); }
};
/// A machine without libsodium during the object's lifetime.
struct NoSodium {
  NoSodium() { hide_sodium(true); }
  ~NoSodium() { hide_sodium(false); }
};

Deadline soon() {
  return Deadline::after(20);
}
AuthListener listen(const Secret& secret) {
  return AuthListener::listen(Address::parse("127.0.0.1:0").value(), secret).value();
}
Secret random_kind(bool guessable) {
  return guessable ? secret_of_words("ccl 10.0.0.1:4711 run 17") : random_secret();
}

Recording parse(const Wire& by_caller, const Wire& by_listener) {
  const auto record = Recording::of(by_caller, by_listener);
  REQUIRE(record);
  return *record;
}
/// Records an honest handshake.
Recording recorded(const Secret& secret) {
  auto listener = listen(secret);
  Relay relay{listener.address()};
  REQUIRE(auth_connect(relay.address(), secret, text_bytes("rank 3"), soon(), nullptr));
  REQUIRE(listener.accept(soon(), nullptr));
  relay.stop();
  return parse(relay.by_caller, relay.by_listener);
}

/// Number of words of a dictionary that fit a recording.
int fitting_words(const Recording& r, bool& finds_right_word, const Secret& right) {
  int fitting = 0;
  finds_right_word = false;
  for (int n = 0; n < 500; ++n) {
    const Secret guess = secret_of_words("ccl 10.0.0.1:4711 run " + std::to_string(n));
    const int tags = r.fitting_tags(guess);
    fitting += tags;
    finds_right_word = finds_right_word || (tags > 0 && guess == right);
  }
  return fitting;
}

/// Bytes that the listener sends to a caller who plays `message`, after its greeting.
std::size_t answer_to(const Address& where, const Wire& message) {
  const Fd fd = std::move(*connect_once(where, soon(), nullptr));
  Greeting greeting;
  REQUIRE(recv_all(fd.get(), &greeting, sizeof greeting, soon(), nullptr));
  (void)send_all(fd.get(), message.data(), Index(message.size()), soon(), nullptr);
  ::shutdown(fd.get(), SHUT_WR);
  std::size_t bytes = 0;
  char c;
  while (recv_all(fd.get(), &c, 1, soon(), nullptr)) ++bytes;
  return bytes;
}

/// Listens once, sends `greeting`, and answers the claim by `answer`.
Errc call_impostor(const Secret& secret, const Greeting& greeting,
                   const std::function<Digest(const Wire& claim)>& answer) {
  const Fd gate = std::move(*listen_at(Address::parse("127.0.0.1:0").value()));
  std::thread impostor{[&] {
    if (!wait_ready(gate.get(), POLLIN, soon(), nullptr)) return;
    const Fd fd{::accept4(gate.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!send_all(fd.get(), &greeting, sizeof greeting, soon(), nullptr)) return;
    Wire claim(sizeof(Claim) + sizeof(Digest));
    if (!recv_all(fd.get(), claim.data(), Index(claim.size()), soon(), nullptr)) return;
    const Digest tag = answer(claim);
    (void)send_all(fd.get(), &tag, sizeof tag, soon(), nullptr);
  }};
  const auto fd = auth_connect(bound_address(gate.get()).value(), secret, {}, soon(), nullptr);
  impostor.join();
  return fd ? Errc::ok : fd.error().code;
}
Greeting greeting_for(const Secret& secret) {
  Greeting greeting;
  greeting.terms = Terms::own(secret).value();
  fill_random(greeting.nonce);
  return greeting;
}

}  // namespace

TEST_CASE("a handshake by exchange lets in who knows the words, and nobody else") {
  if (!can_run()) return;
  const Secret words = random_kind(true);
  CHECK(Terms::own(words)->mode == ProofMode::exchange);
  CHECK(Terms::own(random_secret())->mode == ProofMode::hmac);
  auto listener = listen(words);
  REQUIRE(auth_connect(listener.address(), words, text_bytes("me"), soon(), nullptr));
  CHECK(listener.accept(soon(), nullptr)->hello.size() == 2);
  const auto wrong =
      auth_connect(listener.address(), secret_of_words("other words"), {}, soon(), nullptr);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == Errc::refused);
  CHECK(wrong.error().what.find("CCL_SECRET_FILE") != std::string::npos);
}

TEST_CASE("a dictionary finds the words of a recorded HMAC, and has nothing to check in a CPace") {
  const Secret right = random_kind(true);
  bool found = false;
  {
    const NoSodium without;
    const Recording weak = recorded(right);
    CHECK(fitting_words(weak, found, right) == 2);  // by each of the two tags
    CHECK(found);
  }
  if (!can_run()) return;
  const Recording strong = recorded(right);
  CHECK(fitting_words(strong, found, right) == 0);
}

TEST_CASE("a recorded handshake is worth nothing") {
  const bool guessable = GENERATE(false, true);
  const Secret secret = random_kind(guessable);
  auto listener = listen(secret);
  Relay relay{listener.address()};
  REQUIRE(auth_connect(relay.address(), secret, text_bytes("hello"), soon(), nullptr));
  REQUIRE(listener.accept(soon(), nullptr));
  relay.stop();
  // To the listener, its own caller's bytes again.
  CHECK(answer_to(listener.address(), relay.by_caller) == 0);
  CHECK(listener.accept(Deadline::after(0), nullptr).error().code == Errc::timed_out);
  // To a caller, the listener's bytes again.
  const Recording r = parse(relay.by_caller, relay.by_listener);
  CHECK(call_impostor(secret, r.greeting, [&](const Wire&) { return r.listener_tag; }) ==
        Errc::refused);
}

TEST_CASE("who stands in for the root without the secret is refused") {
  const bool guessable = GENERATE(false, true);
  const Secret secret = random_kind(guessable);
  SECTION("with an answer of its own") {
    CHECK(call_impostor(secret, greeting_for(secret), [](const Wire&) {
            Digest tag;
            fill_random(tag);
            return tag;
          }) == Errc::refused);
  }
  SECTION("with the caller's tag sent back") {
    CHECK(call_impostor(secret, greeting_for(secret), [](const Wire& claim) {
            Digest tag;
            std::memcpy(&tag, claim.data() + sizeof(Claim), sizeof tag);
            return tag;
          }) == Errc::refused);
  }
  SECTION("with another secret") {
    const Secret guess = guessable ? secret_of_words("a guess") : random_secret();
    Greeting greeting = greeting_for(secret);
    const CpaceShare share = handshake_share(guess, greeting.terms.mode, greeting.nonce);
    greeting.share = share.share;
    CHECK(call_impostor(secret, greeting, [&](const Wire& message) {
            Claim claim;
            std::memcpy(&claim, message.data(), sizeof claim);
            const auto keys =
                handshake_keys(guess, HandshakeSide::listener, share, greeting, claim, {});
            return keys ? keys->listener_tag : Digest{};
          }) == Errc::refused);
  }
}

TEST_CASE("an invalid point is refused by both ends") {
  if (!can_run()) return;
  const Secret words = random_kind(true);
  for (const std::byte value : {std::byte{0}, std::byte{0xff}}) {
    Greeting greeting = greeting_for(words);
    greeting.share.fill(value);
    CHECK(call_impostor(words, greeting, [](const Wire&) { return Digest{}; }) == Errc::refused);
    auto listener = listen(words);
    Claim claim;
    claim.terms = Terms::own(words).value();
    claim.share.fill(value);
    Wire message(sizeof claim + sizeof(Digest));
    std::memcpy(message.data(), &claim, sizeof claim);
    CHECK(answer_to(listener.address(), message) == 0);
  }
}

TEST_CASE("a relay passes on what it cannot alter unseen") {
  const bool guessable = GENERATE(false, true);
  const char* const value = GENERATE("off", "integrity", "full");
  const std::string kind = value;
  if (kind != "off" && !can_run()) return;
  const Encrypted encrypted{value};
  const Secret secret = random_kind(guessable);
  auto listener = listen(secret);
  Relay relay{listener.address(), Relay::Alters::caller, sizeof(Claim) + sizeof(Digest)};
  auto caller = auth_connect(relay.address(), secret, {}, soon(), nullptr);
  REQUIRE(caller);
  auto accepted = listener.accept(soon(), nullptr);
  REQUIRE(accepted);
  REQUIRE(caller->send(text_bytes("attack at dawn")) == 14);
  std::array<std::byte, 14> got{};
  const auto arrived = recv_all(accepted->socket, got, soon(), nullptr);
  if (kind == "off") {  // the weakness that the setting ends
    REQUIRE(arrived);
    CHECK(to_hex(got) == to_hex(text_bytes("attack at dawo")));
  } else {
    REQUIRE_FALSE(arrived);
    CHECK(arrived.error().os_code == EBADMSG);
    CHECK(arrived.error().what.find("altered") != std::string::npos);
  }
  relay.stop();
  const std::string_view record{reinterpret_cast<const char*>(relay.by_caller.data()),
                                relay.by_caller.size()};
  CHECK((record.find("attack at daw") != record.npos) == (kind != "full"));
}

TEST_CASE("a relay that alters a byte of the handshake ends it") {
  const bool guessable = GENERATE(false, true);
  const Secret secret = random_kind(guessable);
  auto listener = listen(secret);
  Relay relay{listener.address(), Relay::Alters::caller, 0};
  CHECK_FALSE(auth_connect(relay.address(), secret, {}, Deadline::after(3), nullptr));
  CHECK(listener.accept(Deadline::after(0), nullptr).error().code == Errc::timed_out);
}

TEST_CASE("an end without libsodium is refused by name, and both without it work") {
  if (!can_run()) return;
  const Secret words = random_kind(true);
  {
    auto listener = listen(words);
    const NoSodium without;
    const auto refused = auth_connect(listener.address(), words, {}, soon(), nullptr);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::refused);
    CHECK(refused.error().what.find("an HMAC of the secret") != std::string::npos);
    CHECK(refused.error().what.find("password-authenticated exchange") != std::string::npos);
    CHECK(refused.error().what.find("libsodium23") != std::string::npos);
  }
  const NoSodium without;
  auto listener = listen(words);
  CHECK(auth_connect(listener.address(), words, {}, soon(), nullptr));
  const Encrypted encrypted{"full"};
  const auto impossible = auth_connect(listener.address(), words, {}, soon(), nullptr);
  REQUIRE_FALSE(impossible);
  CHECK(impossible.error().code == Errc::not_supported);
}

TEST_CASE("an end that has a secret refuses public words, and says that the secret may differ") {
  if (!can_run()) return;
  auto listener = listen(random_kind(false));
  const auto refused = auth_connect(listener.address(), random_kind(true), {}, soon(), nullptr);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Errc::refused);
  CHECK(refused.error().what.find("only one end has a secret") != std::string::npos);
  CHECK(refused.error().what.find("the same CCL_SECRET_FILE or CCL_SECRET") != std::string::npos);
}

TEST_CASE("different CCL_ENCRYPTION is an error that names both") {
  if (!can_run()) return;
  const Secret secret = random_secret();
  auto listener = listen(secret);  // off
  const Encrypted encrypted{"full"};
  const auto caller = auth_connect(listener.address(), secret, {}, soon(), nullptr);
  REQUIRE_FALSE(caller);
  CHECK(caller.error().code == Errc::mismatch);
  CHECK(caller.error().what.find("CCL_ENCRYPTION is full here and off at the other end") !=
        std::string::npos);
  const auto accepted = listener.accept(soon(), nullptr);
  REQUIRE(accepted);
  CHECK(accepted->differs.find("CCL_ENCRYPTION is off here and full at the other end") !=
        std::string::npos);
}
