#pragma once

// Ends of connections that read an input as if the other end had sent it.
#include <ccl/transport/proxy_task.hpp>

#include "base/io/fd.hpp"
#include "fuzz/fuzz.hpp"
#include "net/secure_socket.hpp"
#include <sys/socket.h>

namespace ccl::fuzz {

/// Two ends of a connection. The product has `near`.
struct Connected {
  detail::Fd far;
  detail::net::SecureSocket near;

  static Connected make() {
    int both[2];
    demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0, "pair");
    return {detail::Fd{both[1]}, detail::net::SecureSocket{detail::Fd{both[0]}}};
  }
};

/// Sends the rest of an input from the far end, in pieces, and lets the task read each. Drops its
/// answers.
inline void feed(Source& source, std::size_t piece, const detail::Fd& far, ProxyTask& task) {
  ProxyCounters counters;
  while (!source.empty()) {
    const Input bytes = source.take_bytes(piece);
    if (::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) break;
    for (int turn = 0; turn < 2; ++turn) (void)task.progress(counters);
    char answer[4096];
    while (::recv(far.get(), answer, sizeof answer, 0) > 0) {
    }
  }
}

}  // namespace ccl::fuzz
