#pragma once

// Two ranks of one process, connected by IbTransport.
#include <ccl/transport/ib.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "environment.hpp"
#include "support/driver.hpp"
#include "support/lent.hpp"

namespace ccl::test {

using Settings = Environment::Values;

struct Ends {
  std::string problem[2];
  Error error[2];  // of connecting, or of the communicator
};

/// Two ranks in threads, connected both ways; `run(rank, duplex, lent)` is the problem that it had.
/// `prepare(context)` changes what a communicator lends.
template <class Run, class Prepare = void (*)(TransportContext&)>
Ends connected_ranks(
    WireShape shape, Run run, Prepare prepare = [](TransportContext&) {}) {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  Ends ends;
  const auto rank = [&](int r) {
    Lent lent;
    prepare(lent.context);
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

/// An edge whose ends have an engine each, and nothing beside it.
struct OneEdge {
  Lent from, to;
  std::optional<Connection> out, in;
  /// `nics` and `numa`: of both ends.
  explicit OneEdge(WireShape shape, const EdgeNics& nics = {}, int numa = -1) {
    from.context.numa = to.context.numa = numa;
    const PeerInfo sends = info_of(0), receives = info_of(1);
    const auto id = 10ull << 40 | 1;
    const auto edge = [&](EdgeSide side) {
      Edge end = edge_of(sends, receives, side, shape, id);
      end.nics = nics;
      return end;
    };
    auto receiver = IbTransport::setup(to.context, edge(EdgeSide::receiver));
    REQUIRE(receiver.has_value());
    auto sender = IbTransport::setup(from.context, edge(EdgeSide::sender));
    REQUIRE(sender.has_value());
    auto connected = sender->connect(receiver->handshake());
    REQUIRE(connected.has_value());
    out = std::move(*connected);
    in = *receiver->connect(sender->handshake());
  }
  /// Sends `steps` on a wire, which has room for them. The proxy may sleep meanwhile, and is woken.
  Outcome push(int wire, Word steps, Word seed) {
    Outcome sent = test::push(out->wires[std::size_t(wire)], steps, seed);
    from.proxy.wake();
    return sent;
  }
};
/// Each task of the engine has had a turn since.
inline void await_turns(const detail::ProxyEngine& engine) {
  const Word before = engine.counters().rounds;
  REQUIRE(wait_until([&] { return engine.counters().rounds >= before + 2; }));
}
/// Blocks the other tasks of an engine until it is released.
class Hold {
 public:
  explicit Hold(detail::ProxyEngine& engine) {
    REQUIRE(engine.add(task_));
    REQUIRE(wait_until([&] { return task_->reached.load(); }));
  }
  ~Hold() { task_->holds = false; }

 private:
  struct Task final : ProxyTask {
    std::atomic<bool> holds{true}, reached{false};
    Progress progress(ProxyCounters&) override {
      reached = true;
      while (holds) std::this_thread::yield();
      return Progress::ended;
    }
    ProxyInterest interest() const override { return {}; }
    bool ending() const override { return false; }
  };
  std::shared_ptr<Task> task_ = std::make_shared<Task>();
};

inline void check_fine(const Ends& ends) {
  for (int r = 0; r < 2; ++r) {
    CHECK(ends.problem[r] == "");
    CHECK(ends.error[r].what == "");
  }
}
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}
/// Returns the error of the rank whose write failed. It has more details than the error of the
/// other, which only receives it.
inline std::string reported(const Ends& ends) {
  return ends.error[0].what + " | " + ends.error[1].what;
}

}  // namespace ccl::test
