#pragma once

// Moves steps through wires by hand, as lanes would, and checks the received data.
#include <ccl/detail/base/status.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/detail/transport/zero_copy.hpp>
#include <ccl/transport/transport.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <ranges>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ccl::test {

constexpr double wait_limit_s = 60;  // of one wait: ends a test that hangs, nothing else

/// Waits until `done()`. Returns false after a stop of the status or at the deadline.
template <class Done>
bool wait_until(Done done, const detail::Status* status = nullptr) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_limit_s);
  for (int round = 1; !done(); ++round) {
    detail::HostMemory::pause();
    if (round % 256 == 0 && std::chrono::steady_clock::now() > end) return false;
    if (status != nullptr && !status->ok()) return done();
  }
  return true;
}

/// A cheap sequence that both ends can follow.
inline Word mix(Word x) {
  x = (x ^ x >> 31) * 0x7fb5'd329'728e'a185u;
  x = (x ^ x >> 27) * 0x81da'def4'bc2d'd44du;
  return x ^ x >> 33;
}
inline Word step_bytes(const Wire& wire, Word seed, Word step) {
  const Word slot = Word(wire.slot_packets) * sizeof(Packet);
  switch (mix(seed * 977 + step) % 4) {
    case 0:
      return slot;
    case 1:
      return 8 * (mix(seed + step) % 4);  // sometimes nothing at all
    default:
      return 8 * (mix(seed ^ step * 31) % (slot / 8 + 1));
  }
}

struct Outcome {
  Word steps = 0;       // that went through
  std::string problem;  // empty if all did
};

/// `proxy`: of a proxied wire; the thread helps it while it waits, as one in a collective does.
using Help = std::optional<detail::ProxyEngine::Helper>;
inline void help(Help& helper, detail::ProxyEngine* proxy) {
  if (proxy != nullptr) helper.emplace(*proxy);
}

inline Outcome push(const Wire& wire, Word steps, Word seed, const detail::Status* status = nullptr,
                    detail::ProxyEngine* proxy = nullptr) {
  Help helper;
  help(helper, proxy);
  Outcome outcome;
  for (Word n = 0; n < steps; ++n) {
    const Word step = *wire.sent;
    if (!wait_until(
            [&] {
              return step < detail::HostMemory::load_credit(wire.drained) + Word(wire.slot_count);
            },
            status)) {
      outcome.problem = "no credit for step " + std::to_string(step);
      return outcome;
    }
    const Word bytes = step_bytes(wire, seed, step);
    Word* const data = wire.slot(step)->word;
    for (Word w = 0; w < bytes / 8; ++w) data[w] = mix(seed ^ step << 24 ^ w);
    if (wire.sizes != nullptr) wire.sizes[step % Word(wire.slot_count)] = bytes;
    *wire.sent = step + 1;
    detail::HostMemory::store_release(wire.posted, step + 1);
    ++outcome.steps;
  }
  return outcome;
}

inline Outcome pull(const Wire& wire, Word steps, Word seed, const detail::Status* status = nullptr,
                    detail::ProxyEngine* proxy = nullptr) {
  Help helper;
  help(helper, proxy);
  Outcome outcome;
  for (Word n = 0; n < steps; ++n) {
    const Word step = *wire.received;
    const Word bytes = step_bytes(wire, seed, step);
    if (wire.zero_copy != nullptr && step % 3 != 0) {  // not always, nor always all of it
      wire.zero_copy->want(step + 1, step % 3 == 1 ? Index(bytes) : -1);
    }
    if (!wait_until([&] { return detail::HostMemory::load_acquire(wire.posted) > step; }, status)) {
      outcome.problem = "step " + std::to_string(step) + " did not come";
      return outcome;
    }
    if (wire.sizes != nullptr && wire.sizes[step % Word(wire.slot_count)] != bytes) {
      outcome.problem = "wrong size of step " + std::to_string(step);
      return outcome;
    }
    const Word* const data = wire.slot(step)->word;
    for (Word w = 0; w < bytes / 8; ++w) {
      if (data[w] != mix(seed ^ step << 24 ^ w)) {
        outcome.problem = "wrong word " + std::to_string(w) + " of step " + std::to_string(step);
        return outcome;
      }
    }
    *wire.received = step + 1;
    detail::HostMemory::store_credit(wire.drained, step + 1);
    ++outcome.steps;
  }
  return outcome;
}

/// All wires of a connection at once, a thread for each.
template <class Step>
std::string on_all(const Connection& connection, Step step) {
  std::vector<Outcome> outcomes(connection.wires.size());
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < connection.wires.size(); ++w) {
    threads.emplace_back([&, w] { outcomes[w] = step(connection.wires[w], Word(w)); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& outcome : outcomes) {
    if (!outcome.problem.empty()) return outcome.problem;
  }
  return {};
}

inline Edge edge_of(const PeerInfo& from, const PeerInfo& to, EdgeSide side, WireShape shape,
                    unsigned long long id) {
  Edge edge;
  edge.self = side == EdgeSide::sender ? from : to;
  edge.peer = side == EdgeSide::sender ? to : from;
  edge.side = side;
  edge.shape = shape;
  edge.id = id;
  return edge;
}

inline PeerInfo info_of(int rank) {
  auto info = local_peer_info(rank, -1);
  REQUIRE(info.has_value());
  return *info;
}

/// Both directions between two ranks.
struct Duplex {
  Connection out, in;
};

inline bool swap_bytes(int fd, const void* mine, void* theirs, std::size_t bytes) {
  return ::send(fd, mine, bytes, MSG_NOSIGNAL) == ssize_t(bytes) &&
         ::recv(fd, theirs, bytes, MSG_WAITALL) == ssize_t(bytes);
}

/// Makes both directions with the process or thread at the other end of `fd`. The ranks connect in
/// opposite orders: each sends first.
template <class T>
Result<Duplex> connect_pair(TransportContext& context, int rank, WireShape shape, int fd) {
  CCL_TRY(const PeerInfo self, local_peer_info(rank, -1));
  PeerInfo peer;
  if (!swap_bytes(fd, &self, &peer, sizeof self)) return fail(Errc::peer_lost, "no peer");
  CCL_CHECK(T::can_connect(self, peer));
  CCL_CHECK(T::can_connect(peer, self));
  const auto id = [](int sender, int receiver) {  // as edge_id() makes them
    return 10ull << 40 | static_cast<unsigned long long>(sender) << 20 |
           static_cast<unsigned long long>(receiver);
  };
  const auto out_id = id(rank, peer.rank), in_id = id(peer.rank, rank);
  CCL_TRY(auto out, T::setup(context, edge_of(self, peer, EdgeSide::sender, shape, out_id)));
  CCL_TRY(auto in, T::setup(context, edge_of(peer, self, EdgeSide::receiver, shape, in_id)));
  const Handshake mine[2] = {out.handshake(), in.handshake()};
  Handshake theirs[2];
  if (!swap_bytes(fd, mine, theirs, sizeof mine)) return fail(Errc::peer_lost, "no handshake");
  Duplex duplex;
  const auto connect = [&]() -> Result<void> {
    CCL_TRY(duplex.out, out.connect(theirs[1]));
    CCL_TRY(duplex.in, in.connect(theirs[0]));
    return {};
  };
  Result<void> made = connect();
  char mine_done = 1, theirs_done = 0;  // an end that closes too early is an error at the other
  const bool both = swap_bytes(fd, &mine_done, &theirs_done, 1);
  CCL_CHECK(made);
  if (!both) return fail(Errc::peer_lost, "no peer");
  return duplex;
}

/// Runs `rank(0, fd)` here and `rank(1, fd)` in a thread, at the ends of a socket pair. What they
/// return is what went wrong: nothing may.
template <class Rank>
void check_two_threads(Rank rank) {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  std::string problem[2];
  std::thread other{[&] { problem[1] = rank(1, fds[1]); }};
  problem[0] = rank(0, fds[0]);
  other.join();
  ::close(fds[0]);
  ::close(fds[1]);
  CHECK(problem[0] == "");
  CHECK(problem[1] == "");
}

/// Runs `child(fd)` in a child at one end of a socket pair, and `parent(fd, pid)` here at the
/// other. The child's empty answer means all was well; what went wrong otherwise is returned.
template <class Child, class Parent>
std::string with_child(Child child, Parent parent) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return "no socket pair";
  int verdict[2];
  if (::pipe(verdict) != 0) return "no pipe";
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(fds[0]);
    ::close(verdict[0]);
    const std::string problem = child(fds[1]);
    if (!problem.empty() && ::write(verdict[1], problem.data(), problem.size()) < 0) ::_exit(3);
    ::_exit(problem.empty() ? 0 : 2);  // no exit handlers: they are the parent's
  }
  ::close(fds[1]);
  ::close(verdict[1]);
  std::string mine = parent(fds[0], pid);
  ::close(fds[0]);
  char text[1024];
  const ssize_t length = ::read(verdict[0], text, sizeof text);
  ::close(verdict[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (length > 0) {
    mine += " child: " + std::string(text, std::size_t(length));
  } else if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    mine += " child: ended with " + std::to_string(WEXITSTATUS(status));
  }
  return mine;
}

/// Waits for threads of earlier cases, which end by themselves, and then forks. A child has none of
/// them, but the thread sanitizer still counts them. It ends the child when the C library gives a
/// new thread the stack of one of them.
template <class Child, class Parent>
std::string alone_with_child(Child child, Parent parent) {
#if defined __SANITIZE_THREAD__
  constexpr int own = 2;  // the sanitizer's thread too
#else
  constexpr int own = 1;
#endif
  const auto threads = [] {
    return std::ranges::distance(std::filesystem::directory_iterator{"/proc/self/task"},
                                 std::filesystem::directory_iterator{});
  };
  if (!wait_until([&] { return threads() <= own; })) return "threads of an earlier case still run";
  return with_child(child, parent);
}

/// Steps both ways over all wires at once; empty if every word arrived.
inline std::string exchange(const Duplex& duplex, int rank, int peer, Word steps,
                            const detail::Status* status = nullptr,
                            detail::ProxyEngine* proxy = nullptr) {
  std::string out;
  std::thread sender([&] {
    out = on_all(duplex.out, [&](const Wire& wire, Word w) {
      return push(wire, steps, 100 * Word(rank + 1) + w, status, proxy);
    });
  });
  std::string in = on_all(duplex.in, [&](const Wire& wire, Word w) {
    return pull(wire, steps, 100 * Word(peer + 1) + w, status, proxy);
  });
  sender.join();
  if (!out.empty()) return "rank " + std::to_string(rank) + " sends: " + out;
  return in.empty() ? in : "rank " + std::to_string(rank) + " receives: " + in;
}

}  // namespace ccl::test
