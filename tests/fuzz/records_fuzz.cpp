// Records of a protected connection, in pieces.
#include <cerrno>

#include "fuzz/fuzz.hpp"
#include "net/crypto/sodium.hpp"
#include "net/secure_socket.hpp"
#include <sys/socket.h>

namespace ccl::fuzz {

using namespace detail;
using namespace detail::net;

namespace {

SessionKeys keys(Encryption encryption) {
  SessionKeys made;
  made.encryption = encryption;
  return made;
}

struct Ends {
  Ends() {
    int both[2];
    demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0, "pair");
    near.reset(both[0]);
    far.reset(both[1]);
  }
  Fd near, far;
};

/// What a sender of these texts puts on the wire.
std::string records_of(Encryption encryption, const std::vector<std::string>& texts) {
  Ends ends;
  SecureSocket sender{std::move(ends.near), keys(encryption)};
  for (const std::string& text : texts) {
    (void)sender.send(std::as_bytes(std::span{text.data(), text.size()}));
  }
  char some[65536];
  const auto n = ::recv(ends.far.get(), some, sizeof some, 0);
  return {some, std::size_t(std::max<ssize_t>(n, 0))};
}

const std::vector<std::string> texts{"first", std::string(300, 's'), "third"};

}  // namespace

void prepare() {
  if (has_sodium()) return;
  std::fprintf(stderr, "SKIP: no libsodium\n");
  std::exit(77);
}

void read(Input input) {
  Source source{input};
  const auto encryption =
      source.take<std::uint8_t>() % 2 == 0 ? Encryption::integrity : Encryption::full;
  const std::size_t piece = 1 + source.take<std::uint8_t>();
  Ends ends;
  SecureSocket receiver{std::move(ends.near), keys(encryption)};
  std::string received;
  bool open = true;
  while (open && !source.empty()) {
    const Input bytes = source.take_bytes(piece);
    demand(::send(ends.far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0, "send");
    for (std::byte some[64];;) {
      const ssize_t n = receiver.recv(some);
      if (n > 0) received.append(reinterpret_cast<const char*>(some), std::size_t(n));
      open = n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
      if (n <= 0) break;
    }
  }
  // Only what the sender sealed comes out, in its order.
  std::string all;
  for (const std::string& text : texts) all += text;
  demand(all.starts_with(received), "bytes that no sender has sealed");
}

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  for (const auto encryption : {Encryption::integrity, Encryption::full}) {
    for (const int piece : {0, 40, 255}) {
      out.push_back(bytes_of(std::uint8_t(encryption == Encryption::full), std::uint8_t(piece)) +
                    records_of(encryption, texts));
    }
  }
  return out;
}

}  // namespace ccl::fuzz
