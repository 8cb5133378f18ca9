#include "net/secure_socket.hpp"

#include <cerrno>
#include <cstring>
#include <numeric>
#include <vector>

#include "net/crypto/sodium.hpp"
#include "support/catch.hpp"
#include "support/hex.hpp"
#include "support/skip.hpp"
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::detail::net;
using namespace ccl::test;
using ccl::detail::Fd;

namespace {

using Wire = std::vector<std::byte>;

/// Two ends of a protected connection, and an attacker on the way between them: each end's socket
/// leads to the attacker.
struct Path {
  Path(Encryption encryption, bool aes) {
    keys.encryption = encryption;
    keys.aes = aes;
    fill_random(keys.out);
    fill_random(keys.in);
    SessionKeys other = keys;
    std::swap(other.out, other.in);
    int a[2], b[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, a) == 0);
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, b) == 0);
    sender = SecureSocket{Fd{a[0]}, keys};
    from_sender = Fd{a[1]};
    receiver = SecureSocket{Fd{b[0]}, other};
    to_receiver = Fd{b[1]};
  }
  /// What the sender's socket has given so far.
  Wire take() {
    Wire wire(1 << 20);
    const ssize_t n = ::recv(from_sender.get(), wire.data(), wire.size(), MSG_DONTWAIT);
    wire.resize(std::size_t(std::max<ssize_t>(n, 0)));
    return wire;
  }
  void give(const Wire& wire) {
    REQUIRE(::send(to_receiver.get(), wire.data(), wire.size(), MSG_DONTWAIT) ==
            ssize_t(wire.size()));
  }
  /// The record of `text`, as the sender sends it.
  Wire record(std::string_view text) {
    REQUIRE(sender.send(text_bytes(text)) == ssize_t(text.size()));
    return take();
  }
  std::string receive() {
    std::string text(100, '\0');
    const ssize_t n = receiver.recv(std::as_writable_bytes(std::span{text}));
    code = n < 0 ? errno : 0;
    text.resize(std::size_t(std::max<ssize_t>(n, 0)));
    return text;
  }

  SessionKeys keys;  // of the sender
  SecureSocket sender, receiver;
  Fd from_sender, to_receiver;
  int code = 0;
};

struct Kind {
  Encryption encryption;
  bool aes;
};
std::vector<Kind> kinds() {
  if (!has_sodium()) {
    skip(sodium_problem());
    return {};
  }
  std::vector<Kind> out{{Encryption::integrity, false}, {Encryption::full, false}};
  if (has_aes()) out.insert(out.end(), {{Encryption::integrity, true}, {Encryption::full, true}});
  return out;
}
bool contains(const Wire& wire, std::string_view text) {
  const auto bytes = text_bytes(text);
  return std::search(wire.begin(), wire.end(), bytes.begin(), bytes.end()) != wire.end();
}

}  // namespace

TEST_CASE("a protected connection carries bytes of any length") {
  for (const Kind kind : kinds()) {
    INFO(name(kind.encryption) << (kind.aes ? " AES" : " ChaCha20"));
    Path path{kind.encryption, kind.aes};
    std::vector<std::byte> sent(300'000), got(sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = std::byte(i * 31 >> 3);
    std::size_t out = 0, in = 0;
    // Pieces of 1, 2, 4 ... bytes, each in two parts.
    for (std::size_t piece = 1, turns = 0; in < sent.size() && turns < 100'000; ++turns) {
      const std::size_t n = std::min(piece, sent.size() - out);
      const iovec parts[] = {{sent.data() + out, n / 3}, {sent.data() + out + n / 3, n - n / 3}};
      if (n > 0 && !path.sender.unsent()) {
        const ssize_t taken = path.sender.send(parts);
        if (taken > 0) out += std::size_t(taken);
        piece = std::min<std::size_t>(2 * piece, 150'000);
      }
      path.sender.flush();
      path.give(path.take());
      for (;;) {
        const ssize_t n_in = path.receiver.recv(
            std::span{got}.subspan(in, std::min<std::size_t>(got.size() - in, 1 + in % 70'000)));
        if (n_in <= 0) break;
        in += std::size_t(n_in);
      }
    }
    CHECK(in == sent.size());
    CHECK(got == sent);
  }
}

TEST_CASE("a receive that asks the system for nothing does not call it empty") {
  for (const Kind kind : kinds()) {
    INFO(name(kind.encryption) << (kind.aes ? " AES" : " ChaCha20"));
    Path path{kind.encryption, kind.aes};
    std::vector<std::byte> some(60);
    path.give(path.record(std::string(100, 'a')));
    CHECK(path.receiver.recv(some) == 60);
    CHECK_FALSE(path.receiver.drained());  // the rest is here
    path.give(path.record("later"));
    CHECK(path.receiver.recv(some) == 40);  // of the first record
    CHECK_FALSE(path.receiver.buffered());
    CHECK_FALSE(path.receiver.drained());
    CHECK(path.receive() == "later");
    CHECK(path.receiver.drained());
  }
}

TEST_CASE("full hides what it carries, and integrity shows it") {
  for (const Kind kind : kinds()) {
    Path path{kind.encryption, kind.aes};
    const Wire one = path.record("a word of the trade");
    const Wire two = path.record("a word of the trade");
    CHECK(contains(one, "a word of the trade") == (kind.encryption == Encryption::integrity));
    CHECK_FALSE(one == two);  // the same text never looks the same
    path.give(one);
    CHECK(path.receive() == "a word of the trade");
  }
}

TEST_CASE("a record that is altered anywhere ends the connection") {
  for (const Kind kind : kinds()) {
    const std::size_t bytes = record_head_bytes + 5 + record_tag_bytes;
    for (std::size_t at = 0; at < bytes; ++at) {
      INFO(name(kind.encryption) << " byte " << at);
      Path path{kind.encryption, kind.aes};
      Wire wire = path.record("hello");
      const Wire next = path.record("again");
      REQUIRE(wire.size() == bytes);
      wire[at] ^= std::byte{1};
      path.give(wire);
      path.give(next);
      path.give(next);  // also where an altered length waits for more bytes
      CHECK(path.receive().empty());
      CHECK((path.code == EBADMSG || (at < record_head_bytes && path.code == EAGAIN)));
      if (path.code == EBADMSG) {
        CHECK(path.receive().empty());
        CHECK(path.code == EBADMSG);  // for ever
      }
    }
  }
}

TEST_CASE("a record that is repeated, moved, left out or sent back ends the connection") {
  for (const Kind kind : kinds()) {
    INFO(name(kind.encryption) << (kind.aes ? " AES" : " ChaCha20"));
    SECTION("repeated") {
      Path path{kind.encryption, kind.aes};
      const Wire one = path.record("one");
      path.give(one);
      CHECK(path.receive() == "one");
      path.give(one);
      CHECK(path.receive().empty());
      CHECK(path.code == EBADMSG);
    }
    SECTION("moved") {
      Path path{kind.encryption, kind.aes};
      const Wire one = path.record("one"), two = path.record("two");
      path.give(two);
      path.give(one);
      CHECK(path.receive().empty());
      CHECK(path.code == EBADMSG);
    }
    SECTION("left out") {
      Path path{kind.encryption, kind.aes};
      path.record("one");
      path.give(path.record("two"));
      CHECK(path.receive().empty());
      CHECK(path.code == EBADMSG);
    }
    SECTION("sent back to its sender") {
      Path path{kind.encryption, kind.aes};
      const Wire one = path.record("one");
      REQUIRE(::send(path.from_sender.get(), one.data(), one.size(), 0) == ssize_t(one.size()));
      std::byte got[10];
      CHECK(path.sender.recv(got) == -1);
      CHECK(errno == EBADMSG);
    }
    SECTION("cut") {
      Path path{kind.encryption, kind.aes};
      Wire one = path.record("one");
      one.resize(one.size() - 1);
      path.give(one);
      path.to_receiver.reset();
      CHECK(path.receive().empty());
      CHECK(path.code == EPROTO);
    }
    SECTION("of a huge length") {
      Path path{kind.encryption, kind.aes};
      path.give(Wire(100, std::byte{0xff}));
      CHECK(path.receive().empty());
      CHECK(path.code == EBADMSG);
    }
  }
}

// Else a peer that sends nothing but such records would hold the thread that receives.
TEST_CASE("a record of no bytes, which no sender makes, ends the connection") {
  for (const Kind kind : kinds()) {
    INFO(name(kind.encryption) << (kind.aes ? " AES" : " ChaCha20"));
    Path path{kind.encryption, kind.aes};
    RecordCipher sealer{kind.encryption, kind.aes, path.keys.out};
    Wire empty(record_head_bytes + record_tag_bytes);
    sealer.seal({}, empty.data());
    path.give(empty);
    CHECK(path.receive().empty());
    CHECK(path.code == EBADMSG);
  }
}

TEST_CASE("a socket without protection carries bytes as they are") {
  Path path{Encryption::off, false};
  CHECK(contains(path.record("plain"), "plain"));
  path.give(Wire(3, std::byte{'x'}));
  CHECK(path.receive() == "xxx");
  CHECK(path.receive().empty());
  CHECK(path.code == EAGAIN);
  CHECK_FALSE(path.receiver.buffered());
}
