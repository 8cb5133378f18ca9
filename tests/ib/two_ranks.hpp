#pragma once

// Two ranks in threads of one process, connected by IbTransport.
#include <ccl/transport/ib.hpp>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "environment.hpp"
#include "transport/driver.hpp"
#include "transport/lent.hpp"

namespace ccl::test {

using Settings = Environment::Values;

struct Ends {
  std::string problem[2];
  Error error[2];  // of connecting, or of the communicator
};

/// Two ranks in threads, connected both ways; `run(rank, duplex, lent)` is the problem that it had.
template <class Run>
Ends connected_ranks(WireShape shape, Run run) {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  Ends ends;
  const auto rank = [&](int r) {
    Lent lent;
    {
      auto duplex = connect_pair<IbTransport>(lent.context, r, shape, fds[r]);
      if (duplex) {
        ends.problem[r] = run(r, *duplex, lent);
        char mine = 1, theirs = 0;
        if (lent.status.ok()) (void)swap_bytes(fds[r], &mine, &theirs, 1);
      } else {
        ends.problem[r] = duplex.error().message();
        ends.error[r] = duplex.error();
      }
    }
    ::shutdown(fds[r], SHUT_RDWR);
    if (!lent.status.ok()) ends.error[r] = lent.status.result().error();
  };
  std::thread other{[&] { rank(1); }};
  rank(0);
  other.join();
  ::close(fds[0]);
  ::close(fds[1]);
  return ends;
}
/// Steps both ways; `body(rank)` runs when they are connected.
template <class Body>
Ends two_ranks(WireShape shape, Word steps, Body body) {
  return connected_ranks(shape, [&](int r, auto& duplex, Lent& lent) {
    body(r);
    return exchange(duplex, r, 1 - r, steps, &lent.status, &lent.proxy);
  });
}
inline Ends two_ranks(WireShape shape, Word steps) {
  return two_ranks(shape, steps, [](int) {});
}

inline void check_fine(const Ends& ends) {
  for (int r = 0; r < 2; ++r) {
    CHECK(ends.problem[r] == "");
    CHECK(ends.error[r].what == "");
  }
}
inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}
/// The rank whose write it was says more than the other, which is told.
inline std::string told(const Ends& ends) {
  return ends.error[0].what + " | " + ends.error[1].what;
}

}  // namespace ccl::test
