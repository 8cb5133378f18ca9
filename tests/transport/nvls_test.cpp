// Collectives over emulated multicast memory between CPU ranks, in threads and in processes.
#include <ccl/algo/nvls.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/group.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/any_of.hpp>
#include <ccl/transport/nvls.hpp>

#include "support/collective_suite.hpp"
#include "support/environment.hpp"
#include "support/loopback_ranks.hpp"
#include "support/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Nvls, Simple, NvlsTransport>;
/// A message of 1,000 numbers takes several launches.
constexpr Plan small{.channels = 2, .slot_count = 2, .slot_bytes = 2048};

/// Sums and a broadcast of a rank, some of which take several launches.
Result<void> run_some(const Communicator& comm) {
  const int ranks = comm.ranks();
  CCL_TRY(auto sums, Sums::create(comm, small));
  CCL_TRY(auto copies, (Collective<Broadcast, Nvls, Simple, NvlsTransport>::create(comm, small)));
  for (const Index count : {1, 1000, 64}) {
    std::vector<int> data(std::size_t(count), 1 << comm.rank());
    CCL_CHECK(sums(data.data(), data.data(), count));
    if (data != std::vector<int>(std::size_t(count), (1 << ranks) - 1)) {
      return fail(Errc::internal, "wrong sums");
    }
    if (comm.rank() == ranks - 1) data.assign(data.size(), 7);
    CCL_CHECK(copies(data.data(), data.data(), count, ranks - 1));
    if (data != std::vector<int>(std::size_t(count), 7)) {
      return fail(Errc::internal, "wrong copies");
    }
  }
  return {};
}
PeerInfo gpu_rank(int rank) {
  PeerInfo info;
  info.rank = info.device = rank;
  info.host_hash = info.memory_domain = 1;
  info.pid_hash = std::uint64_t(rank);
  info.bus_id = rank;
  info.gpu = std::uint64_t(rank) + 1;
  info.compute_capability = 90;
  return info;
}
std::string refusal(const PeerInfo& a, const PeerInfo& b) {
  const auto joined = NvlsTransport::can_join(a, b), other = NvlsTransport::can_join(b, a);
  if (joined.has_value() != other.has_value()) return "the two differ";
  if (!joined) CHECK(joined.error().what == other.error().what);
  return joined ? std::string{} : joined.error().what;
}
}  // namespace

// First: a process that has had threads should not fork.
TEST_CASE("Nvls among processes") {
  const int ranks = GENERATE(2, 5);
  const auto said = run(
      ranks, [](int) {},
      [](const Communicator& comm) -> Answer {
        CCL_CHECK(run_some(comm));
        return "done";
      });
  for (int r = 0; r < ranks; ++r) CHECK(said[std::size_t(r)] == "done");
}

TEST_CASE("Nvls: every operation, count and alignment, among threads") {
  int cases = 0;
  for (const int ranks : {2, 3, 5, 8, 17}) {
    thoroughness = ranks > 5 ? Thoroughness::brief : Thoroughness::all;
    cases += run_suite<Nvls, Simple>(make(ranks), 4003);
  }
  WARN(cases << " calls checked");
}

TEST_CASE("calls over multicast memory in a group, on streams, and beside wires") {
  on_all(make(3), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm, small));
    CCL_TRY(auto more, Sums::create(comm, small));
    CCL_TRY(auto tree, (Collective<AllReduce, Tree, Simple, LoopbackTransport>::create(comm)));
    std::vector<int> a(500, 1), b(3, 2), c(700, 3);
    std::vector<int> none;
    CCL_CHECK(group(sums.bind(a.data(), a.data(), 500), tree.bind(b.data(), b.data(), 3),
                    more.bind(c.data(), c.data(), 700), more.bind(none.data(), none.data(), 0)));
    HostStream first, second;
    CCL_CHECK(sums(a.data(), a.data(), 500, Sum{}, first));
    CCL_CHECK(more(c.data(), c.data(), 700, Sum{}, second));
    CCL_CHECK(first.synchronize());
    CCL_CHECK(second.synchronize());
    const bool right = a == std::vector<int>(500, 9) && b == std::vector<int>(3, 6) &&
                       c == std::vector<int>(700, 27);
    return right ? Result<void>{} : fail(Errc::internal, "wrong sums");
  });
}

TEST_CASE("a rank may drop its collective while others still store to its memory") {
  // In a first broadcast, no rank waits for one that is not the root.
  std::atomic<int> dropped{0};
  on_all(make(3), [&](const Communicator& comm) -> Result<void> {
    using Copies = Collective<Broadcast, Nvls, Simple, NvlsTransport>;
    CCL_TRY(auto made, Copies::create(comm, small));
    std::optional<Copies> copies{std::move(made)};
    int value = comm.rank() == 0 ? 7 : 0;
    while (comm.rank() == 2 && dropped < 2) std::this_thread::yield();
    CCL_CHECK((*copies)(&value, &value, 1, 0));
    copies.reset();
    ++dropped;
    return value == 7 ? Result<void>{} : fail(Errc::internal, "wrong copy");
  });
}

TEST_CASE("a call that one rank does not make ends at the deadline and names it") {
  Config config;
  config.timeout_s = 0.3;
  const auto results = on_ranks(3, config, [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm, small));
    std::vector<int> data(300, 1);
    if (comm.rank() == 1) return {};
    return sums(data.data(), data.data(), 300);
  });
  CHECK(results[1].has_value());
  for (const int r : {0, 2}) {
    REQUIRE_FALSE(results[std::size_t(r)]);
    const Error& error = results[std::size_t(r)].error();
    INFO(error.message());
    CHECK(error.code == Errc::timed_out);
    CHECK(error.what.find("rank 1") != std::string::npos);
  }
}

TEST_CASE("multicast memory by DefaultTransport, and beside wires in a list") {
  static_assert(multicast_of<AnyOf<ShmTransport, SocketTransport>> == MulticastKind::none);
  static_assert(multicast_of<AnyOf<ShmTransport, EmulatedNvlsTransport, NvlsTransport>> ==
                MulticastKind::emulated);
  static_assert(multicast_of<ForCpus<DefaultTransport>> == MulticastKind::switches);
  on_all(make(2), [](const Communicator& comm) -> Result<void> {
    using Ways = AnyOf<NvlsTransport, LoopbackTransport>;
    CCL_TRY(auto sums,
            (Collective<AllReduce, Nvls, Simple, DefaultTransport>::create(comm, small)));
    CCL_TRY(auto more, (Collective<AllReduce, Nvls, Simple, Ways>::create(comm, small)));
    CCL_TRY(auto tree, (Collective<AllReduce, Tree, Simple, Ways>::create(comm, small)));
    std::vector<int> data(100, 1);
    CCL_CHECK(sums(data.data(), data.data(), 100));
    CCL_CHECK(more(data.data(), data.data(), 100));
    CCL_CHECK(tree(data.data(), data.data(), 100));
    return data == std::vector<int>(100, 8) ? Result<void>{} : fail(Errc::internal, "wrong sums");
  });
}

TEST_CASE("scratch without room for a tile of each rank, and too many ranks") {
  constexpr Plan tiny{.channels = 1, .slot_count = 2, .slot_bytes = 512};
  on_all(make(3), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm, tiny));
    int value = 1;
    const auto refused = sums(&value, &value, 1);
    if (refused || refused.error().code != Errc::over_budget) {
      return fail(Errc::internal, "not refused");
    }
    return {};
  });
}

TEST_CASE("which ranks can share multicast memory") {
  const PeerInfo a = gpu_rank(0), b = gpu_rank(1);
  CHECK(refusal(a, b).empty());
  PeerInfo other = b;
  other.host_hash = 2;
  CHECK(refusal(a, other).find("different hosts") != std::string::npos);
  other = b;
  other.compute_capability = 80;
  CHECK(refusal(a, other).find("the GPU of rank 1 is of sm_80") != std::string::npos);
  other = b;
  other.bus_id = a.bus_id;
  other.gpu = a.gpu;
  CHECK(refusal(a, other).find("share a GPU") != std::string::npos);

  PeerInfo c = a, d = b;
  c.device = d.device = -1;
  CHECK(refusal(c, d).empty());
  d.memory_domain = 2;
  CHECK(refusal(c, d).find("network namespaces") != std::string::npos);
  d.pid_hash = c.pid_hash;
  CHECK(refusal(c, d).empty());
  d = b;
  d.device = -1;
  const Environment disabled{"CCL_SHM_DISABLE", "1"};
  CHECK(refusal(c, d).find("CCL_SHM_DISABLE is 1") != std::string::npos);
  d.pid_hash = c.pid_hash;
  CHECK(refusal(c, d).empty());
}

TEST_CASE("transports of multicast memory connect no wires") {
  const auto wire = NvlsTransport::can_connect(gpu_rank(0), gpu_rank(1));
  REQUIRE_FALSE(wire);
  CHECK(wire.error().code == Errc::no_transport);
  CHECK(wire.error().what.find("no wires") != std::string::npos);
  TransportContext context;
  Edge edge;
  edge.self = gpu_rank(0), edge.peer = gpu_rank(1);
  const auto end = EmulatedNvlsTransport::setup(context, edge);
  REQUIRE_FALSE(end);
  CHECK(end.error().peer == 1);
}
