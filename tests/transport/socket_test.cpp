#include <ccl/transport/socket.hpp>

#include <chrono>
#include <csignal>
#include <ctime>

#include "support/driver.hpp"
#include "support/environment.hpp"
#include "support/lent.hpp"
#include "support/skip.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

std::string rank_main(int rank, int fd, WireShape shape, Word steps, bool helps = true) {
  Lent lent;
  std::string problem;
  {
    const auto duplex = connect_pair<SocketTransport>(lent.context, rank, shape, fd);
    if (!duplex) return duplex.error().message();
    problem = exchange(*duplex, rank, 1 - rank, steps, &lent.status, helps ? &lent.proxy : nullptr);
  }
  if (!lent.status.ok()) problem += lent.status.result().error().message();
  return problem;
}

std::string two_processes(WireShape shape, Word steps) {
  return alone_with_child([&](int fd) { return rank_main(1, fd, shape, steps); },
                          [&](int fd, pid_t) { return rank_main(0, fd, shape, steps); });
}

/// Ends of TCP connections in this process.
int connection_ends() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) continue;
    if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) continue;
    bool again = false;  // a descriptor for the same socket: it has the same cookie
    const auto cookie = [](int of) {
      std::uint64_t value = 0;
      socklen_t size = sizeof value;
      (void)::getsockopt(of, SOL_SOCKET, SO_COOKIE, &value, &size);
      return value;
    };
    for (int other = 0; other < fd && !again; ++other) again = cookie(other) == cookie(fd);
    count += again ? 0 : 1;
  }
  return count;
}
/// TCP connections both ends of which are in this process.
int connections() {
  return connection_ends() / 2;
}

}  // namespace

TEST_CASE("both directions share a connection, unless there are several for each") {
  const bool several = GENERATE(false, true);
  const Environment environment{{{"CCL_NSOCKS_PERTHREAD", several ? "2" : "1"}}};
  const WireShape shape{3, 2, 1024};
  int before = 0, made = 0;
  check_two_threads([&](int rank, int fd) {
    Lent lent;
    std::string problem;
    {
      if (rank == 0) before = connections();
      char mine = 1, theirs = 0;
      (void)swap_bytes(fd, &mine, &theirs, 1);
      const auto duplex = connect_pair<SocketTransport>(lent.context, rank, shape, fd);
      if (!duplex) return duplex.error().message();
      problem = exchange(*duplex, rank, 1 - rank, 50, &lent.status, &lent.proxy);
      (void)swap_bytes(fd, &mine, &theirs, 1);  // all sockets now carry steps
      if (rank == 0) made = connections() - before;
      (void)swap_bytes(fd, &mine, &theirs, 1);
    }
    if (!lent.status.ok()) problem += lent.status.result().error().message();
    return problem;
  });
  CHECK(made == (several ? 2 * 2 : 1) * shape.channels);
}

TEST_CASE("steps come before they are wanted, though others are answered meanwhile") {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  const WireShape shape{1, 4, 1024};
  Lent ahead, behind;
  std::optional<Result<Duplex>> theirs;
  std::thread other{
      [&] { theirs = connect_pair<SocketTransport>(ahead.context, 1, shape, fds[1]); }};
  const auto mine = connect_pair<SocketTransport>(behind.context, 0, shape, fds[0]);
  other.join();
  REQUIRE(mine);
  REQUIRE(*theirs);
  const Wire& in = mine->in.wires[0];
  REQUIRE(in.zero_copy != nullptr);
  in.zero_copy->want(1, Index(step_bytes(in, 5, 0)));
  // One that is wanted and three that are not, as of a peer that is calls ahead.
  CHECK(push((*theirs)->out.wires[0], 4, 5, &ahead.status, &ahead.proxy).problem == "");
  CHECK(push(mine->out.wires[0], 1, 6, &behind.status, &behind.proxy).problem == "");
  CHECK(
      wait_until([&] { return detail::HostMemory::load_acquire(in.posted) == 4; }, &behind.status));
  CHECK(pull(in, 4, 5, &behind.status, &behind.proxy).problem == "");
  CHECK(pull((*theirs)->in.wires[0], 1, 6, &ahead.status, &ahead.proxy).problem == "");
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST_CASE("a rank that leaves a shared connection is missed only by who still sends to it") {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  const WireShape shape{1, 4, 1024};
  std::string problem;
  std::thread leaver{[&] {
    Lent lent;
    const auto duplex = connect_pair<SocketTransport>(lent.context, 1, shape, fds[1]);
    if (!duplex) problem = duplex.error().message();
  }};
  Lent lent;
  const auto duplex = connect_pair<SocketTransport>(lent.context, 0, shape, fds[0]);
  leaver.join();
  REQUIRE(duplex);
  CHECK(problem == "");
  std::this_thread::sleep_for(std::chrono::milliseconds{20});  // the engine sees it close
  CHECK(lent.status.ok());                                     // the peer closed gracefully
  const Outcome outcome = push(duplex->out.wires[0], 100, 5, &lent.status, &lent.proxy);
  CHECK(outcome.problem != "");
  REQUIRE_FALSE(lent.status.ok());
  CHECK(lent.status.result().error().code == Errc::peer_lost);
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST_CASE("one end of a shared connection goes before the other") {
  const WireShape shape{2, 4, 1024};
  Lent lent[2];
  check_two_threads([&](int rank, int fd) -> std::string {
    auto duplex = connect_pair<SocketTransport>(lent[rank].context, rank, shape, fd);
    if (!duplex) return duplex.error().message();
    if (rank == 1) duplex->out = {};
    std::this_thread::sleep_for(std::chrono::milliseconds{50});  // both engines see it
    char mine = 1, theirs = 0;
    return swap_bytes(fd, &mine, &theirs, 1) ? "" : "the other is gone";
  });
  for (const Lent& end : lent) CHECK(end.status.ok());
}

TEST_CASE("who has begun to leave a shared connection does not miss the peer's goodbye") {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  const WireShape shape{1, 4, 1024};
  const int before = connection_ends();
  Lent lent[2];
  std::optional<Result<Duplex>> theirs;
  std::thread other{
      [&] { theirs = connect_pair<SocketTransport>(lent[1].context, 1, shape, fds[1]); }};
  auto mine = connect_pair<SocketTransport>(lent[0].context, 0, shape, fds[0]);
  other.join();
  REQUIRE(mine);
  REQUIRE(*theirs);
  // Both ends are in use: the accepting one has its sockets.
  CHECK(push(mine->out.wires[0], 1, 5, &lent[0].status, &lent[0].proxy).problem == "");
  CHECK(pull((*theirs)->in.wires[0], 1, 5, &lent[1].status, &lent[1].proxy).problem == "");
  REQUIRE(connection_ends() == before + 2);
  const bool begun = GENERATE(true, false);
  if (begun) mine->out = {};
  // Closes without a close_notify, as if it was lost.
  lent[1].status.set(Error{});
  (*theirs)->out = {};
  (*theirs)->in = {};
  CHECK(wait_until([&] { return connection_ends() <= before + (begun ? 0 : 1); }, nullptr));
  if (begun) {
    CHECK(lent[0].status.ok());
  } else {
    CHECK(wait_until([&] { return !lent[0].status.ok(); }, nullptr));
  }
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST_CASE("steps cross TCP between processes, both ways at once, on every channel") {
  const WireShape shape = GENERATE(WireShape{1, 2, 128}, WireShape{2, 8, 4096},
                                   WireShape{1, 4, 64 << 10}, WireShape{2, 2, 512 << 10});
  const Word steps = shape.slot_bytes > 4096 ? 40 : 400;
  CHECK(two_processes(shape, steps) == "");
}

TEST_CASE("large steps are spread over sockets and threads") {
  const auto [threads, each] =
      GENERATE(std::pair{"0", "2"}, std::pair{"1", "1"}, std::pair{"2", "2"});
  const Environment environment{{{"CCL_SOCKET_NTHREADS", threads}, {"CCL_NSOCKS_PERTHREAD", each}}};
  CHECK(two_processes({1, 4, 512 << 10}, 60) == "");
}

TEST_CASE("the ends may want different numbers of sockets: the receiver's counts") {
  CHECK(alone_with_child(
            [&](int fd) {
              const Environment environment{{{"CCL_NSOCKS_PERTHREAD", "3"}}};
              return rank_main(1, fd, {1, 2, 256 << 10}, 30);
            },
            [&](int fd, pid_t) {
              return rank_main(0, fd, {1, 2, 256 << 10}, 30);
            }) == "");
}

TEST_CASE("IPv6") {
  const int fd = ::socket(AF_INET6, SOCK_STREAM, 0);
  if (fd < 0) return ccl::test::skip("no IPv6 here");
  ::close(fd);
  const Environment environment{{{"CCL_SOCKET_FAMILY", "AF_INET6"}, {"CCL_SOCKET_IFNAME", "=lo"}}};
  CHECK(two_processes({1, 4, 4096}, 100) == "");
}

TEST_CASE("ranks in threads, and an engine that finishes what a root leaves behind") {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  std::string problem[2];
  const WireShape shape{1, 8, 256 << 10};
  std::thread root([&] {
    Lent lent;
    auto duplex = connect_pair<SocketTransport>(lent.context, 0, shape, fds[0]);
    // Eight steps fit in the ring: the root never waits, and closes before they are sent.
    problem[0] = duplex ? push(duplex->out.wires[0], 8, 3, &lent.status, &lent.proxy).problem
                        : duplex.error().message();
  });
  {
    Lent lent;
    auto duplex = connect_pair<SocketTransport>(lent.context, 1, shape, fds[1]);
    root.join();
    problem[1] = duplex ? pull(duplex->in.wires[0], 8, 3, nullptr, &lent.proxy).problem
                        : duplex.error().message();
    CHECK(lent.status.ok());  // it left in peace
  }
  ::close(fds[0]);
  ::close(fds[1]);
  CHECK(problem[0] == "");
  CHECK(problem[1] == "");
}

TEST_CASE("kill -9 of the peer ends a wait in either direction with its name") {
  const bool sending = GENERATE(false, true);
  const WireShape shape{1, 4, 1024};
  Errc code = Errc::ok;
  int peer = -1;
  const std::string problem = alone_with_child(
      [&](int fd) -> std::string {
        Lent lent;
        const auto duplex = connect_pair<SocketTransport>(lent.context, 1, shape, fd);
        if (!duplex) return duplex.error().message();
        char go = 0;
        if (::read(fd, &go, 1) != 1) return "no parent";
        ::raise(SIGKILL);
        return "survived";
      },
      [&](int fd, pid_t) -> std::string {
        Lent lent;
        const auto duplex = connect_pair<SocketTransport>(lent.context, 0, shape, fd);
        if (!duplex) return duplex.error().message();
        if (::write(fd, "x", 1) != 1) return "no child";
        const Outcome outcome =
            sending ? push(duplex->out.wires[0], 1'000'000, 100, &lent.status, &lent.proxy)
                    : pull(duplex->in.wires[0], 1, 200, &lent.status, &lent.proxy);
        if (outcome.problem.empty()) return "nothing was noticed";
        if (lent.status.ok()) return "no status";
        code = lent.status.result().error().code;
        peer = lent.status.result().error().peer;
        return {};
      });
  CHECK(problem == "");
  CHECK(code == Errc::peer_lost);
  CHECK(peer == 1);
}

TEST_CASE("an idle connection burns no processor time") {
  const std::string problem = alone_with_child(
      [&](int fd) -> std::string {
        Lent lent;
        const auto duplex = connect_pair<SocketTransport>(lent.context, 1, {2, 4, 1024}, fd);
        char end = 0;
        return ::read(fd, &end, 1) == 1 ? "" : "no parent";
      },
      [&](int fd, pid_t) -> std::string {
        Lent lent;
        const auto duplex = connect_pair<SocketTransport>(lent.context, 0, {2, 4, 1024}, fd);
        if (!duplex) return duplex.error().message();
        double used = 1;
        // Again where the engines' threads had no core to go to sleep on.
        for (int tries = 0; tries < 20 && used >= 0.03; ++tries) {
          timespec before{}, after{};
          ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
          std::this_thread::sleep_for(std::chrono::milliseconds{300});
          ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
          used =
              double(after.tv_sec - before.tv_sec) + double(after.tv_nsec - before.tv_nsec) * 1e-9;
        }
        if (::write(fd, "x", 1) != 1) return "no child";
        return used < 0.03 ? "" : "used " + std::to_string(used) + " s";
      });
  CHECK(problem == "");
}

TEST_CASE("another secret is refused, and a sender that never comes is named") {
  Lent ours, theirs;
  theirs.context.secret[0] = std::byte{99};
  theirs.context.deadline_s = 5;
  ours.context.deadline_s = 0.3;
  const auto began = std::chrono::steady_clock::now();
  const PeerInfo a = info_of(0), b = info_of(1);
  const WireShape shape{1, 2, 128};
  auto receiver =
      SocketTransport::setup(ours.context, edge_of(a, b, EdgeSide::receiver, shape, 1)).value();
  auto stranger =
      SocketTransport::setup(theirs.context, edge_of(a, b, EdgeSide::sender, shape, 1)).value();
  const auto refused = stranger.connect(receiver.handshake());
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::refused);
  CHECK(refused.error().rank == 0);
  CHECK(refused.error().peer == 1);
  CHECK(refused.error().transport == "socket");

  const auto in = receiver.connect({});
  REQUIRE(in.has_value());
  // No lane helps, as on a GPU. Rounds of the engine's thread that have another reason name nobody
  // before four limits: senders that wait for a rank that has stopped name that rank before.
  CHECK(wait_until([&] {
    ours.proxy.wake();
    return !ours.status.ok();
  }));
  CHECK(std::chrono::steady_clock::now() - began >= std::chrono::milliseconds{1200});
  CHECK(ours.status.result().error().code == Errc::timed_out);
  CHECK(ours.status.result().error().peer == 0);
}

TEST_CASE("ends of different shapes are a mismatch") {
  Lent lent;
  const PeerInfo a = info_of(0), b = info_of(1);
  auto receiver =
      SocketTransport::setup(lent.context, edge_of(a, b, EdgeSide::receiver, {1, 2, 128}, 1))
          .value();
  auto sender =
      SocketTransport::setup(lent.context, edge_of(a, b, EdgeSide::sender, {1, 4, 128}, 1)).value();
  const auto out = sender.connect(receiver.handshake());
  CHECK(wait_until([&] { return !lent.status.ok(); }));
  CHECK(lent.status.result().error().code == Errc::mismatch);
  CHECK(sender.connect(Handshake{}).has_value());  // it is connected already
}

TEST_CASE("what cannot work is said at once") {
  TransportContext context;
  const PeerInfo a = info_of(0), b = info_of(1);
  const auto no_proxy =
      SocketTransport::setup(context, edge_of(a, b, EdgeSide::sender, {1, 2, 128}, 1));
  REQUIRE(!no_proxy);
  CHECK(no_proxy.error().code == Errc::invalid_usage);
  Lent lent;
  auto sender =
      SocketTransport::setup(lent.context, edge_of(a, b, EdgeSide::sender, {1, 2, 128}, 1)).value();
  CHECK(sender.connect(Handshake{}).error().code == Errc::mismatch);
  const Environment environment{{{"CCL_SOCKET_IFNAME", "=nosuch0"}}};
  CHECK(!SocketTransport::setup(lent.context, edge_of(a, b, EdgeSide::receiver, {1, 2, 128}, 1)));
}
