#include <ccl/transport/any_of.hpp>

#include <cstdlib>

#include "support/driver.hpp"
#include "support/lent.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Transport that connects no ranks, with a reason.
struct Nowhere : LoopbackTransport {
  static constexpr const char* name = "nowhere";
  static constexpr int atomic_line_bytes = 8;
  static Result<void> can_connect(const PeerInfo&, const PeerInfo&) {
    return fail(Errc::no_transport, "nowhere leads nowhere");
  }
};
/// Connects only from lower to higher ranks.
struct Upwards : LoopbackTransport {
  static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to) {
    if (from.rank < to.rank) return {};
    return fail(Errc::no_transport, "upwards does not lead down");
  }
};
/// Loopback wires that count as the named kind of transport.
template <TransportKind Kind>
struct OfKind : LoopbackTransport {
  static constexpr const char* name = Kind == TransportKind::rdma ? "own rdma" : "own p2p";
  static constexpr TransportKind kind = Kind;
};

template <class T>
std::string rank_main(int rank, int fd, const char* expected) {
  Lent lent;
  const auto duplex = connect_pair<T>(lent.context, rank, {2, 4, 1024}, fd);
  if (!duplex) return duplex.error().message();
  if (std::string{duplex->out.transport} != expected) {
    return std::string{"got "} + duplex->out.transport;
  }
  return exchange(*duplex, rank, 1 - rank, 100, &lent.status, &lent.proxy);
}
template <class T>
std::string two_processes(const char* expected) {
  return alone_with_child([&](int fd) { return rank_main<T>(1, fd, expected); },
                          [&](int fd, pid_t) { return rank_main<T>(0, fd, expected); });
}

}  // namespace

TEST_CASE("AnyOf promises what all of its members do") {
  using Near = AnyOf<LoopbackTransport, ShmTransport>;
  STATIC_REQUIRE(Near::scope == Scope::host);
  STATIC_REQUIRE(!Near::peer_addressable);
  STATIC_REQUIRE(!Near::proxied);
  STATIC_REQUIRE(Near::atomic_line_bytes == 128);
  STATIC_REQUIRE(AnyOf<LoopbackTransport>::peer_addressable);
  STATIC_REQUIRE(AnyOf<LoopbackTransport, Nowhere>::atomic_line_bytes == 8);
  STATIC_REQUIRE(DefaultTransport::scope == Scope::network);
  STATIC_REQUIRE(DefaultTransport::proxied);
  STATIC_REQUIRE(Transport<AnyOf<Nowhere, Near>>);
}

TEST_CASE("between processes of a host the default is shm, and sockets where shm is disabled") {
  CHECK(two_processes<DefaultTransport>("shm") == "");
  REQUIRE(::setenv("CCL_SHM_DISABLE", "1", 1) == 0);
  const std::string problem = two_processes<DefaultTransport>("socket");
  ::unsetenv("CCL_SHM_DISABLE");
  CHECK(problem == "");
}

TEST_CASE("within a process the default is loopback") {
  check_two_threads(
      [](int rank, int fd) { return rank_main<DefaultTransport>(rank, fd, "loopback"); });
}

TEST_CASE("both ends of an edge choose the same, even where the answer depends on the way") {
  using T = AnyOf<Upwards, ShmTransport>;
  check_two_threads(
      [](int rank, int fd) { return rank_main<T>(rank, fd, rank == 0 ? "loopback" : "shm"); });
}

TEST_CASE("the topology's preference goes by the kind of a transport, not by its name") {
  using T = AnyOf<OfKind<TransportKind::p2p>, LoopbackTransport, OfKind<TransportKind::rdma>>;
  PeerInfo from = info_of(0);
  const PeerInfo to = info_of(1);
  const auto chosen = [&] { return std::string{T::edge_transport(from, to).transport}; };
  CHECK(chosen() == "own p2p");
  from.way.avoid_p2p = 1;
  CHECK(chosen() == "loopback");
  from.way.prefer_rdma = 1;
  CHECK(chosen() == "own rdma");
}

TEST_CASE("an edge that nobody connects lists each reason") {
  PeerInfo a = info_of(0), b = info_of(1);
  b.host_hash ^= 1;
  b.pid_hash ^= 1;
  using Near = AnyOf<Nowhere, LoopbackTransport, ShmTransport>;
  const auto refused = Near::can_connect(a, b);
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::no_transport);
  CHECK(refused.error().what.find("nowhere leads nowhere") != std::string::npos);
  CHECK(refused.error().what.find("different processes") != std::string::npos);
  CHECK(refused.error().what.find("different hosts") != std::string::npos);
  TransportContext context;
  const auto end = Near::setup(context, edge_of(a, b, EdgeSide::receiver, {1, 2, 128}, 1));
  REQUIRE(!end);
  CHECK(end.error().code == Errc::no_transport);
  CHECK(end.error().rank == 1);
  CHECK(end.error().peer == 0);
}

TEST_CASE("CCL_TRANSPORT narrows the choice") {
  ::setenv("CCL_TRANSPORT", "Socket, p2p", 1);
  CHECK(two_processes<DefaultTransport>("socket") == "");
  ::setenv("CCL_TRANSPORT", "^shm", 1);
  CHECK(two_processes<DefaultTransport>("socket") == "");
  ::setenv("CCL_TRANSPORT", "^shm,socket", 1);
  PeerInfo here, there;
  there.pid_hash = here.pid_hash + 1;
  const auto none = DefaultTransport::can_connect(here, there);
  ::unsetenv("CCL_TRANSPORT");
  REQUIRE(!none);
  CHECK(none.error().code == Errc::no_transport);
  CHECK(none.error().what.find("CCL_TRANSPORT is ^shm,socket") != std::string::npos);
}
