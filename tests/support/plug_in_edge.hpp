#pragma once

// Edges between two ranks over a network plug-in of tests, and faults of its functions.
#include <ccl/transport/plugin.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "support/driver.hpp"
#include "support/error_matchers.hpp"
#include "support/lent.hpp"
#include "support/net_plug_in.hpp"

namespace ccl::test {

/// A communicator of its own: a proxy may lie where an earlier one was, whose context lives on
/// until its connections are closed, and the plug-in's contexts are found by proxy and secret.
using Secret = std::array<std::byte, 16>;
inline Secret fresh_secret() {
  static std::uint32_t communicators = 0;
  Secret secret{};
  ++communicators;
  std::memcpy(secret.data(), &communicators, sizeof communicators);
  return secret;
}

/// Runs one end of an edge, as rank 0 or 1. Returns a problem, or an empty text.
inline std::string rank_main(int rank, int fd, const WireShape& of, Word steps,
                             const Secret& secret) {
  Lent lent;
  lent.context.secret = secret;
  std::string problem;
  {
    const auto duplex = connect_pair<PluginTransport>(lent.context, rank, of, fd);
    if (!duplex) return duplex.error().message();
    problem = exchange(*duplex, rank, 1 - rank, steps, &lent.status, &lent.proxy);
  }
  if (!lent.status.ok()) problem += lent.status.result().error().message();
  return problem;
}

/// Sends steps both ways between two threads.
inline void check_exchange(const WireShape& of, Word steps) {
  check_two_threads([&, secret = fresh_secret()](int rank, int fd) {
    return rank_main(rank, fd, of, steps, secret);
  });
}

/// A fault of a function, for as long as this lives.
class Faulty {
 public:
  Faulty(const TestNet& net, const char* function, int after, int result)
      : net_{net}, function_{function} {
    net.fail(function, after, result);
  }
  ~Faulty() { net_.fail(function_, 0, 0); }

 private:
  const TestNet& net_;
  const char* const function_;
};

/// One edge, with both ends in this process.
struct OneEdge {
  Lent from, to;
  PeerInfo a = info_of(0), b = info_of(1);
  std::optional<Result<PluginTransport::End>> sender, receiver;
  Result<Connection> out{}, in{};

  /// Connects the ends, as far as that goes.
  explicit OneEdge(double deadline_s = 20, const WireShape& of = {2, 4, 1024}, int entries = 0,
                   double call_limit_s = 0) {
    from.context.secret = to.context.secret = fresh_secret();
    from.proxy.note_transfers(entries);
    to.proxy.note_transfers(entries);
    from.proxy.limit_calls(call_limit_s);
    to.proxy.limit_calls(call_limit_s);
    from.context.deadline_s = to.context.deadline_s = deadline_s;
    receiver = PluginTransport::setup(to.context, edge_of(a, b, EdgeSide::receiver, of, 1));
    sender = PluginTransport::setup(from.context, edge_of(a, b, EdgeSide::sender, of, 1));
    if (!*sender || !*receiver) return;
    out = (*sender)->connect((*receiver)->handshake());
    in = (*receiver)->connect((*sender)->handshake());
  }
  /// The error of the end at which it happened.
  Error error() {
    for (auto* const end : {&sender, &receiver}) {
      if (!**end) return (*end)->error();
    }
    const auto errors = [&] {
      std::vector<Error> all;
      for (Lent* const end : {&to, &from}) {
        if (!end->status.ok()) all.push_back(end->status.result().error());
      }
      if (!out) all.push_back(out.error());
      if (!in) all.push_back(in.error());
      std::erase_if(all, [](const Error& one) { return mentions(one.what, "gave up"); });
      return all;
    };
    REQUIRE(wait_until([&] { return !errors().empty(); }));
    return errors().front();
  }
  /// Posts a step if there is a slot at both ends.
  bool try_push() {
    const Wire &wire = out->wires[0], &there = in->wires[0];
    const Word arrived = detail::HostMemory::load_acquire(there.posted);
    detail::HostMemory::store_credit(there.drained, arrived);
    to.proxy.wake();
    const Word drained = detail::HostMemory::load_credit(wire.drained);
    if (*wire.sent >= std::min(drained, arrived) + 4) return false;
    wire.sizes[*wire.sent % 4] = 64;
    *wire.sent += 1;
    detail::HostMemory::store_release(wire.posted, *wire.sent);
    from.proxy.wake();
    return true;
  }
  /// Posts steps until an end fails or `most` are posted. The receiver's lanes return at once what
  /// has arrived, and no step is posted that has no slot there: this plug-in sends also what nobody
  /// receives, and so would all steps of a receiver whose thread does not run.
  Word push_steps(Word most) {
    for (Word n = 0; n < most; ++n) {
      bool pushed = false;
      const bool free =
          wait_until([&] { return !to.status.ok() || (pushed = try_push()); }, &from.status);
      if (!free || !from.status.ok() || !pushed) return n;
    }
    return most;
  }
};

}  // namespace ccl::test
