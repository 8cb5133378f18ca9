// An error of one rank during creation is reported to all ranks, at once and with its name.
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/loopback.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

namespace {

/// Point at which an edge of `Faulty` fails.
enum class At { nowhere, lines, can_connect, setup, connect, lines_of_connection };
At fault = At::nowhere;
constexpr int faulty_sender = 1, faulty_receiver = 2;

bool faulty(int sender, int receiver, At at) {
  return fault == at && sender == faulty_sender && receiver == faulty_receiver;
}

/// Loopback, of which one edge fails; from `setup` on only at its receiver.
struct Faulty {
  static constexpr const char* name = "faulty";
  static constexpr Scope scope = Scope::process;
  static constexpr bool peer_addressable = true;
  static constexpr bool proxied = false;
  static constexpr int atomic_line_bytes = 128;

  class End {
   public:
    Handshake handshake() const { return end_.handshake(); }
    Result<Connection> connect(const Handshake& theirs) {
      const int from = edge_.peer.rank, to = edge_.self.rank;
      const bool receives = edge_.side == EdgeSide::receiver;
      if (receives && faulty(from, to, At::connect)) return fail(Errc::network, "the wire is cut");
      auto made = end_.connect(theirs);
      if (made) made->transport = name;
      if (made && receives && faulty(from, to, At::lines_of_connection)) made->line_bytes = 16;
      return made;
    }

   private:
    friend struct Faulty;
    Edge edge_;
    LoopbackTransport::End end_;
  };
  static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to) {
    if (faulty(from.rank, to.rank, At::can_connect))
      return fail(Errc::no_transport, "no way there");
    return LoopbackTransport::can_connect(from, to);
  }
  static EdgeTransport edge_transport(const PeerInfo& from, const PeerInfo& to) {
    return {name, Medium::host_memory, faulty(from.rank, to.rank, At::lines) ? 16 : 128};
  }
  static Result<End> setup(TransportContext& context, const Edge& edge) {
    if (edge.side == EdgeSide::receiver && faulty(edge.peer.rank, edge.self.rank, At::setup)) {
      return fail(Errc::out_of_memory, "no room for slots");
    }
    End end;
    end.edge_ = edge;
    CCL_TRY(end.end_, LoopbackTransport::setup(context, edge));
    return end;
  }
};
static_assert(Transport<Faulty>);

struct Told {
  Error error;
  bool failed = false, well_after = false;
  double seconds = 0;
};

/// Result of each of four ranks, and whether the rank can continue.
template <class Call>
std::vector<Told> reported(const Call& call) {
  Config config;
  config.timeout_s = 60;
  auto comms = Communicator::create_all(4, config);
  REQUIRE(comms.has_value());
  std::vector<Told> all(4);
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      const Communicator& comm = (*comms)[size_t(r)];
      Told& mine = all[size_t(r)];
      const auto begin = std::chrono::steady_clock::now();
      const Result<void> done = call(comm);
      mine.seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      mine.failed = !done;
      if (!done) mine.error = done.error();
      const auto sums = Collective<AllReduce, Ring, Simple, LoopbackTransport>::create(comm);
      if (!sums) return;
      const int one = 1;
      int sum = 0;
      mine.well_after = (*sums)(&one, &sum, 1).has_value() && sum == 4;
    });
  }
  for (auto& thread : threads) thread.join();
  return all;
}

void check_all_know(const std::vector<Told>& all, Errc code, const std::string& words,
                    int refusing) {
  for (int r = 0; r < 4; ++r) {
    const Told& one = all[size_t(r)];
    INFO("rank " << r << " after " << one.seconds << " s: " << one.error.message());
    CHECK(one.failed);
    CHECK(one.error.code == code);
    CHECK(one.error.what.find(words) != std::string::npos);
    CHECK(one.error.rank == r);
    CHECK(one.seconds < 30);  // a deadline is 60
    CHECK(one.well_after);
    if (r != faulty_sender && r != faulty_receiver) {
      CHECK(one.error.peer == refusing);
      CHECK(one.error.what.find("refused by rank " + std::to_string(refusing)) !=
            std::string::npos);
      CHECK(one.error.transport == "faulty");
    }
  }
}
}  // namespace

TEST_CASE("all ranks learn which edge was refused, and by whom") {
  struct Case {
    At at;
    Errc code;
    const char* words;
    int refusing;
  };
  for (const Case& c :
       {Case{At::lines, Errc::not_supported, "from rank 1 to rank 2 faulty carries 16", 1},
        Case{At::can_connect, Errc::no_transport, "no way there", 1},
        Case{At::setup, Errc::out_of_memory, "no room for slots", 2},
        Case{At::connect, Errc::network, "the wire is cut", 2},
        Case{At::lines_of_connection, Errc::not_supported, "from rank 1 to rank 2", 2}}) {
    fault = c.at;
    const auto all = reported([](const Communicator& comm) {
      return Collective<AllReduce, Ring, LL128, Faulty>::create(comm).transform([](auto&&) {});
    });
    fault = At::nowhere;
    check_all_know(all, c.code, c.words, c.refusing);
  }
}

TEST_CASE("wires that a root first needs are refused to all, and another root's are not") {
  fault = At::setup;
  const auto all = reported([](const Communicator& comm) -> Result<void> {
    // Chain from the root to the rank before it: only those from root 2 do not need the edge 1 to
    // 2.
    CCL_TRY(auto copies, (Collective<Broadcast, Ring, LL, Faulty>::create(comm)));
    (void)copies;
    CCL_TRY(auto trees, (Collective<Broadcast, Tree, LL, Faulty>::create(comm)));
    int x = comm.rank();
    Result<void> refused;
    for (int root = 0; root < 4; ++root) {
      auto done = trees(&x, &x, 1, root);
      if (!done) refused = done;
    }
    return refused;
  });
  fault = At::nowhere;
  for (const Told& one : all) {
    INFO(one.error.message());
    CHECK(one.well_after);
    CHECK(one.failed == all[0].failed);
    CHECK(one.seconds < 30);
    if (one.failed) CHECK(one.error.code == Errc::out_of_memory);
  }
  CHECK(all[0].failed);
}

TEST_CASE("a rank alone exchanges with itself") {
  const auto comm = Communicator::create(*create_unique_id(), 0, 1);
  REQUIRE(comm.has_value());
  const auto exchange = Collective<AllToAll, Pairwise, Simple, LoopbackTransport>::create(*comm);
  REQUIRE(exchange.has_value());
  const std::vector<char> from(100'000, 7);
  std::vector<char> to(from.size());
  CHECK((*exchange)(from.data(), to.data(), Index(from.size())).has_value());
  CHECK(to == from);
}

TEST_CASE("a setting that leaves a composition out on one rank does so on all") {
  // Channels of one rank beyond what a plan may have: only that rank can see it.
  Config config;
  config.timeout_s = 60;
  const UniqueId id = *create_unique_id();
  std::vector<Error> errors(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Config mine = config;
      if (r == 1) mine.channels = 5000;
      auto comm = Communicator::create(id, r, 2, mine);
      if (!comm) {
        errors[size_t(r)] = comm.error();
        return;
      }
      const auto made = Collective<AllReduce, Ring, Simple, LoopbackTransport>::create(*comm);
      if (!made) errors[size_t(r)] = made.error();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Error& error : errors) {
    INFO(error.message());
    CHECK(error.code == Errc::invalid_argument);
    CHECK(error.what.find("5000 channels") != std::string::npos);
  }
  CHECK(errors[0].peer == 1);
}

TEST_CASE(
    "two threads of a rank cannot create compositions at once, and all ranks get the reason") {
  using Sums = Collective<AllReduce, Ring, Simple, LoopbackTransport>;
  using Gathers = Collective<AllGather, Ring, LL, LoopbackTransport>;
  Config config;
  config.timeout_s = 60;
  auto comms = Communicator::create_all(2, config);
  REQUIRE(comms.has_value());
  // Rank 1 calls after it has received the error, so the first of the two waits until then. An
  // earlier call would fail because the ranks' compositions differ.
  Result<void> made[2], other;
  const auto outcome = [](const auto& made_one) -> Result<void> {
    if (made_one) return {};
    return fail(made_one.error());
  };
  std::thread first{[&] { made[0] = outcome(Sums::create((*comms)[0])); }};
  std::thread second{[&] { made[1] = outcome(Gathers::create((*comms)[0])); }};
  first.join();
  second.join();
  while ((*comms)[1].status()) std::this_thread::yield();
  other = outcome(Sums::create((*comms)[1]));
  int refused = 0;
  for (const Result<void>& one : {made[0], made[1], other}) {
    REQUIRE(!one.has_value());
    INFO(one.error().message());
    CHECK(one.error().what.find("while another creates") != std::string::npos);
    refused += one.error().code == Errc::invalid_usage;
  }
  CHECK(refused >= 1);
}
