// Wires between pairs of ranks are made by the calls that need them, and by nobody else.
#include <ccl/collective.hpp>
#include <ccl/detail/runtime/on_demand.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/loopback.hpp>
#include <ccl/transport/socket.hpp>

#include <atomic>
#include <chrono>
#include <latch>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/edges/edge_handshake.hpp"
#include "comm/state.hpp"
#include "support/catch.hpp"
#include "support/growing_limit.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;
using ccl::detail::Access;
using ccl::detail::ProxyEngine;

namespace {

enum class At { nowhere, edge_transport, can_connect, setup, connect };

/// Loopback that counts its ends, and that fails from rank 1 to rank 2.
struct Counted {
  static constexpr const char* name = "counted";
  static constexpr Scope scope = Scope::process;
  static constexpr bool peer_addressable = true;
  static constexpr bool proxied = false;
  static constexpr int atomic_line_bytes = 128;
  static inline std::atomic<int> ends{0}, made{0};
  static inline At fault = At::nowhere;
  static inline std::chrono::milliseconds slow{0};  // what a set-up takes

  static bool faulty(const PeerInfo& from, const PeerInfo& to, At at) {
    return fault == at && from.rank == 1 && to.rank == 2;
  }
  class End {
   public:
    Handshake handshake() const { return end_.handshake(); }
    Result<Connection> connect(const Handshake& theirs) {
      if (edge_.side == EdgeSide::receiver && faulty(edge_.peer, edge_.self, At::connect)) {
        return fail(Errc::network, "the wire is cut");
      }
      ++made;
      return end_.connect(theirs);
    }

   private:
    friend struct Counted;
    Edge edge_;
    LoopbackTransport::End end_;
  };
  static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to) {
    if (faulty(from, to, At::can_connect)) return fail(Errc::no_transport, "no way there");
    return LoopbackTransport::can_connect(from, to);
  }
  static EdgeTransport edge_transport(const PeerInfo& from, const PeerInfo& to) {
    return {name, Medium::host_memory, faulty(from, to, At::edge_transport) ? 4 : 128};
  }
  static Result<End> setup(TransportContext& context, const Edge& edge) {
    if (edge.side == EdgeSide::receiver && faulty(edge.peer, edge.self, At::setup)) {
      return fail(Errc::out_of_memory, "no room for slots");
    }
    ++ends;
    std::this_thread::sleep_for(slow);
    End end;
    end.edge_ = edge;
    CCL_TRY(end.end_, LoopbackTransport::setup(context, edge));
    return end;
  }
};
static_assert(Transport<Counted>);

using Pairs = Collective<SendRecv, Pairwise, Simple, Counted>;
using ToAll = Collective<AllToAll, Pairwise, LL, Counted>;

Config patient(double timeout_s = 60, double init_timeout_s = 60) {
  Config config;
  config.timeout_s = timeout_s;
  config.init_timeout_s = init_timeout_s;
  return config;
}

Result<void> expect(bool right, const char* what) {
  if (right) return {};
  return fail(Errc::internal, what);
}

}  // namespace

TEST_CASE("a pair is connected by the first call that has a message for it, once") {
  Counted::ends = Counted::made = 0;
  constexpr int ranks = 6;
  std::vector<int> after;
  std::latch created{ranks}, sent{ranks}, counted{ranks}, counted_again{ranks};
  check_well(on_ranks(ranks, patient(), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto pairs, Pairs::create(comm));
    CCL_TRY(const auto to_all, ToAll::create(comm));
    const int me = comm.rank();
    created.arrive_and_wait();
    if (me == 0) after.push_back(Counted::ends);
    counted.arrive_and_wait();
    for (int round = 0; round < 3; ++round) {
      if (me < 2) {  // 0 to 1, and nothing back
        int x = 5 + round;
        CCL_CHECK(me == 0 ? pairs.send(&x, 1, 1) : pairs.recv(&x, 1, 0));
        CCL_CHECK(expect(x == 5 + round, "wrong message"));
      } else if (me < 4) {  // both ways, of which one is empty, and one to itself
        const int peer = 5 - me;
        int x = me, y = -1, z = -1;
        CCL_CHECK(pairs.group({Pairs::send_message(&x, me == 2 ? 1 : 0, peer),
                               Pairs::recv_message(&y, me == 2 ? 0 : 1, peer),
                               Pairs::send_message(&x, 1, me), Pairs::recv_message(&z, 1, me)}));
        CCL_CHECK(expect(y == (me == 2 ? -1 : 2) && z == me, "wrong message"));
      }
    }
    sent.arrive_and_wait();
    if (me == 0) after.push_back(Counted::ends);
    counted_again.arrive_and_wait();
    std::vector<int> in(ranks), out(ranks, -1);
    std::iota(in.begin(), in.end(), 100 * me);
    for (int round = 0; round < 2; ++round) CCL_CHECK(to_all(in.data(), out.data(), 1));
    for (int p = 0; p < ranks; ++p) CCL_CHECK(expect(out[size_t(p)] == 100 * p + me, "wrong run"));
    return {};
  }));
  REQUIRE(after.size() == 2);
  CHECK(after[0] == 0);
  CHECK(after[1] == 4);  // 0 to 1, 2 to 3
  CHECK(Counted::ends == 4 + 2 * ranks * (ranks - 1));
  CHECK(Counted::made == Counted::ends);
}

TEST_CASE("without a limit on creation a wire takes the time that it takes") {
  Counted::slow = std::chrono::milliseconds{50};
  check_well(on_ranks(2, patient(60, 0), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto to_all, ToAll::create(comm));
    const int in[2] = {comm.rank(), comm.rank() + 10};
    int out[2] = {-1, -1};
    CCL_CHECK(to_all(in, out, 1));
    return expect(out[1 - comm.rank()] == 1 - comm.rank() + 10 * comm.rank(), "wrong run");
  }));
  Counted::slow = {};
}

TEST_CASE("no order in which pairs are first used deadlocks") {
  // Rank 0 takes part in two messages at once. Ranks 1 and 2 run theirs one after the other, so
  // rank 0's first message must arrive before rank 2 calls.
  check_well(on_ranks(3, patient(20), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto pairs, Pairs::create(comm));
    std::vector<int> x(100'000, comm.rank()), y(x.size(), -1);
    const Index n = Index(x.size());
    switch (comm.rank()) {
      case 0:
        CCL_CHECK(pairs(x.data(), n, 1, y.data(), n, 2));
        return expect(y.back() == 2, "wrong message at 0");
      case 1:
        CCL_CHECK(pairs.recv(y.data(), n, 0));
        CCL_CHECK(pairs.send(x.data(), n, 2));
        return expect(y.back() == 0, "wrong message at 1");
      default:
        CCL_CHECK(pairs.recv(y.data(), n, 1));
        CCL_CHECK(pairs.send(x.data(), n, 0));
        return expect(y.back() == 1, "wrong message at 2");
    }
  }));
  // All pairs, each in another order, over two compositions and channels.
  check_well(on_ranks(5, patient(20), [](const Communicator& comm) -> Result<void> {
    Plan plan;
    plan.channels = 2;
    plan.slot_bytes = 1024;
    CCL_TRY(const auto pairs, Pairs::create(comm, plan));
    CCL_TRY(const auto others, Pairs::create(comm));
    const int me = comm.rank(), ranks = comm.ranks();
    std::vector<std::vector<int>> x(size_t(ranks), std::vector<int>(3000, me)), y = x;
    const auto all = [&](const Pairs& over) -> Result<void> {
      std::vector<Pairs::P2pOp> p2p_ops;
      for (int d = 1; d < ranks; ++d) {
        const int peer = me % 2 == 0 ? (me + d) % ranks : (me + ranks - d) % ranks;
        const auto recv = Pairs::recv_message(y[size_t(peer)].data(), 3000, peer);
        const auto send = Pairs::send_message(x[size_t(peer)].data(), 3000, peer);
        p2p_ops.push_back(me < 2 ? recv : send);
        p2p_ops.push_back(me < 2 ? send : recv);
      }
      CCL_CHECK(over.group(std::span<const Pairs::P2pOp>{p2p_ops}));
      for (int p = 0; p < ranks; ++p) {
        CCL_CHECK(expect(p == me || y[size_t(p)].back() == p, "wrong message"));
      }
      return {};
    };
    CCL_CHECK(all(pairs));
    return all(others);
  }));
}

TEST_CASE("steps over a wire that exists leave while another wire is missing") {
  // As above, but the wire from rank 0 to rank 1 is there already: no new task wakes the proxy,
  // which must move the steps while rank 0 waits for the wire from rank 2.
  using OverTcp = Collective<SendRecv, Pairwise, Simple, SocketTransport>;
  check_well(on_ranks(3, patient(20), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto pairs, OverTcp::create(comm));
    const int me = comm.rank();
    int x = me, y = -1;
    if (me < 2) CCL_CHECK(me == 0 ? pairs.send(&x, 1, 1) : pairs.recv(&y, 1, 0));
    // Until the proxy of rank 0 has gone to sleep.
    ProxyEngine& proxy = Access::state(comm)->proxy;
    for (Word sleeps = proxy.counters().sleeps; me == 0;) {
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
      if (std::exchange(sleeps, proxy.counters().sleeps) == proxy.counters().sleeps) break;
    }
    switch (me) {
      case 0:
        CCL_CHECK(pairs(&x, 1, 1, &y, 1, 2));
        return expect(y == 2, "wrong message at 0");
      case 1:
        CCL_CHECK(pairs.recv(&y, 1, 0));
        CCL_CHECK(pairs.send(&x, 1, 2));
        return expect(y == 0, "wrong message at 1");
      default:
        CCL_CHECK(pairs.recv(&y, 1, 1));
        CCL_CHECK(pairs.send(&x, 1, 0));
        return expect(y == 1, "wrong message at 2");
    }
  }));
}

TEST_CASE("two threads of a rank open pairs at once, in whatever order") {
  check_well(on_ranks(2, patient(20), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto first, Pairs::create(comm));
    CCL_TRY(const auto second, Pairs::create(comm));
    const int peer = 1 - comm.rank();
    const auto swap = [&](const Pairs& over) -> Result<void> {
      int x = comm.rank(), y = -1;
      CCL_CHECK(over(&x, 1, peer, &y, 1, peer));
      return expect(y == peer, "wrong message");
    };
    // Rank 0's second call waits for rank 1's, which comes only after its first.
    Result<void> beside;
    std::thread thread{[&] { beside = swap(comm.rank() == 0 ? second : first); }};
    if (comm.rank() == 1) thread.join();
    const auto done = swap(comm.rank() == 0 ? first : second);
    if (comm.rank() == 0) thread.join();
    CCL_CHECK(beside);
    return done;
  }));
}

TEST_CASE("a peer may come later than a connection may take") {
  const auto with_late_peer = [](double connection_s) {
    Config config = patient(60, connection_s);
    config.device = Config::cpu;
    const auto comms = Communicator::create_all(2, config);
    if (!comms) return comms.error().message();
    return first_problem(on_ranks(*comms, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(const auto pairs, Pairs::create(comm));
      const std::chrono::duration<double> late{1.8 * connection_s};
      if (comm.rank() == 0) std::this_thread::sleep_for(late);
      int x = comm.rank(), y = -1;
      CCL_CHECK(pairs(&x, 1, 1 - comm.rank(), &y, 1, 1 - comm.rank()));
      return expect(y == 1 - comm.rank(), "wrong message");
    }));
  };
  CHECK(with_growing_limit(0.25, with_late_peer) == "");
}

TEST_CASE("a wait for a wire whose other end never comes names the missing rank") {
  std::latch reported{2};
  const auto results = on_ranks(2, patient(0.5), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto pairs, Pairs::create(comm));
    Result<void> done;
    int x = 0;
    if (comm.rank() == 0) done = pairs.recv(&x, 1, 1);
    reported.arrive_and_wait();
    return done;
  });
  REQUIRE(!results[0]);
  INFO(results[0].error().message());
  CHECK(results[0].error().code == Errc::timed_out);
  CHECK(results[0].error().peer == 1);
}

TEST_CASE("what can be known of a pair is refused to all ranks when the composition is created") {
  for (const auto& [at, code] : {std::pair{At::edge_transport, Errc::not_supported},
                                 {At::can_connect, Errc::no_transport}}) {
    Counted::fault = at;
    const auto results = on_ranks(4, patient(), [](const Communicator& comm) -> Result<void> {
      auto made = Collective<SendRecv, Pairwise, LL, Counted>::create(comm);
      if (!made) return fail(made.error());
      return {};
    });
    Counted::fault = At::nowhere;
    for (int r = 0; r < 4; ++r) {
      REQUIRE(!results[size_t(r)]);
      INFO(results[size_t(r)].error().message());
      CHECK(results[size_t(r)].error().code == code);
      CHECK(results[size_t(r)].error().rank == r);
    }
  }
}

TEST_CASE("a pair that fails while a call waits for it fails the call everywhere, by name") {
  for (const auto& [at, code] :
       {std::pair{At::setup, Errc::out_of_memory}, {At::connect, Errc::network}}) {
    Counted::fault = at;
    const auto begin = std::chrono::steady_clock::now();
    const auto results = on_ranks(4, patient(), [](const Communicator& comm) -> Result<void> {
      CCL_TRY(const auto to_all, ToAll::create(comm));
      std::vector<int> in(4), out(4);
      return to_all(in.data(), out.data(), 1);
    });
    Counted::fault = At::nowhere;
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{30});
    REQUIRE(!results[2]);
    INFO(results[2].error().message());
    CHECK(results[2].error().code == code);
    CHECK(results[2].error().peer == 1);
    CHECK(results[2].error().transport == "counted");
    // The other ranks can have completed before, but not rank 1, which had a message for rank 2.
    REQUIRE(!results[1]);
    INFO(results[1].error().message());
    CHECK((results[1].error().code == Errc::aborted || results[1].error().code == code));
  }
}

TEST_CASE("a rank that offers an edge twice is named, and the wire is made once") {
  using OverTcp = Collective<SendRecv, Pairwise, Simple, SocketTransport>;
  Config config;
  config.timeout_s = 10;
  const auto results = on_ranks(2, config, [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto pairs, OverTcp::create(comm));
    int value = 0;
    if (comm.rank() == 0) return pairs.recv(&value, 1, 1);
    detail::Bootstrap& bootstrap = *Access::state(comm)->rendezvous.bootstrap();
    std::vector<detail::Bootstrap::Source> edges;  // of the first compositions
    for (int n = 0; n < 4; ++n) edges.push_back({0, detail::edge_id(n, 1, 0)});
    const auto greeting = bootstrap.recv_any(edges, 20);
    if (greeting.empty()) return fail(Errc::internal, "no greeting");
    const struct {
      int step, back;
      detail::Offer offer;
    } said{1, 0, {{}, SocketTransport::name}};
    for (int n = 0; n < 2; ++n) {
      CCL_CHECK(bootstrap.send(0, greeting[0].first.tag, &said, Index{sizeof said}));
    }
    CCL_CHECK(bootstrap.recv(0, 12345, 20));
    return {};
  });
  for (const auto& result : results) {
    REQUIRE_FALSE(result);
    INFO(result.error().message());
    CHECK(result.error().code == Errc::mismatch);
    CHECK(result.error().peer == 1);
    CHECK(result.error().what.find("an edge is offered twice") != std::string::npos);
  }
}
