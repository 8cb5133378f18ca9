#pragma once

// A rank that a test plays by hand: it knows the secret and can say anything.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "net/auth.hpp"
#include "net/conn.hpp"
#include "net/rendezvous.hpp"

namespace ccl::test {

inline detail::net::Deadline soon() {
  return detail::net::Deadline::after(20);
}
/// Writes what the other end still takes: it may close at the first byte that does not fit.
inline void write_bytes(const detail::net::SecureSocket& fd, detail::net::Bytes bytes) {
  (void)detail::net::send_all(fd.get(), bytes.data(), Index(bytes.size()), soon(), nullptr);
}
inline void write_frame(const detail::net::SecureSocket& fd, const detail::net::FrameHeader& header,
                        detail::net::Bytes payload) {
  write_bytes(fd, detail::net::bytes_of(header));
  write_bytes(fd, payload);
}
/// The payload of the next frame of this kind. Empty if the connection ends before.
inline std::vector<std::byte> read_frame(const detail::net::SecureSocket& fd,
                                         detail::net::FrameKind kind) {
  for (;;) {
    detail::net::FrameHeader header;
    if (!detail::net::recv_all(fd.get(), &header, sizeof header, soon(), nullptr)) return {};
    std::vector<std::byte> payload(header.bytes);
    if (!detail::net::recv_all(fd.get(), payload.data(), Index(payload.size()), soon(), nullptr)) {
      return {};
    }
    if (header.kind == kind) return payload;
  }
}
/// The text of the next notice, or "".
inline std::string read_notice(const detail::net::SecureSocket& fd) {
  detail::net::RootNotice notice;
  const auto payload = read_frame(fd, detail::net::FrameKind::notice);
  return detail::net::read_into(notice, payload) ? detail::net::to_error(notice).what : "";
}
template <class T>
detail::net::SecureSocket call(const detail::net::WireAddress& at,
                               const detail::net::Secret& secret, const T& hello) {
  auto fd = detail::net::auth_connect(detail::net::Address{at}, secret,
                                      detail::net::bytes_of(hello), soon(), nullptr);
  REQUIRE(fd.has_value());
  return *std::move(fd);
}
inline detail::net::SecureSocket accept(detail::net::AuthListener& acceptor,
                                        detail::net::HelloKind kind) {
  auto one = acceptor.accept(soon(), nullptr, [kind](detail::net::Bytes hello) {
    detail::net::HelloKind is{};
    std::memcpy(&is, hello.data(), std::min(hello.size(), sizeof is));
    return is == kind;
  });
  REQUIRE(one.has_value());
  return std::move(one->socket);
}
inline detail::net::AuthListener listen(const detail::net::Secret& secret,
                                        const char* at = "127.0.0.1:0") {
  return detail::net::AuthListener::listen(detail::net::Address::parse(at).value(), secret).value();
}
/// A part of an all-gather as it travels.
template <class T>
struct Part {
  char kind[24] = {}, of[64] = {};
  std::uint64_t barriers = 0;
  T value;
};
template <class T>
Part<T> part_of(std::string_view kind, const T& value) {
  Part<T> out{{}, {}, 0, value};
  kind.copy(out.kind, sizeof out.kind);
  return out;
}

/// The last rank of a job of one root. The constructor joins; `join_ring` forms the ring.
struct PlayedRank {
  PlayedRank(const UniqueId& id, int of_ranks, const char* at = "127.0.0.1:0")
      : ranks{of_ranks}, root{detail::net::unpack(id).value()}, gate{listen(root.secret, at)} {
    me = detail::net::this_member(ranks - 1, gate.address().wire());
    me.pid += 1;  // its host has this process for the other ranks
    to_root = call(root.root, root.secret,
                   detail::net::Hello{detail::net::HelloKind::join, ranks, 1, 0, me});
  }
  void form_ring() {
    REQUIRE(detail::net::read_into(other, read_frame(to_root, detail::net::FrameKind::next)));
    next = call(other.listen, root.secret,
                detail::net::Hello{detail::net::HelloKind::ring, ranks, 0, 0, me});
    prev = accept(gate, detail::net::HelloKind::ring);
    write_frame(to_root, {detail::net::FrameKind::formed, me.rank, 0, 0}, {});
  }
  /// Gives `member` as its own description. Jobs of two and three ranks need no forwarding.
  void exchange_members(const detail::net::Member& member) const {
    const auto out = part_of("the formation of the ring", member);
    const detail::net::FrameHeader header{detail::net::FrameKind::part, me.rank, 0, sizeof out};
    write_frame(next, header, detail::net::bytes_of(out));
    if (ranks > 2) write_frame(prev, header, detail::net::bytes_of(out));
  }
  void join_ring() {
    form_ring();
    exchange_members(me);
  }

  const int ranks;
  const detail::net::IdContent root;
  detail::net::AuthListener gate;
  detail::net::Member me, other;  // `other`: the next rank, 0
  detail::net::SecureSocket to_root, next, prev;
};

}  // namespace ccl::test
