// The simulator and the chooser beside hosts that are played in one process: bytes of each NIC,
// rings and trees, plans, and the order of compositions.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/choose/candidate.hpp>
#include <ccl/collective.cuh>
#include <ccl/detail/choose/chooser.hpp>
#include <ccl/detail/choose/facts.hpp>
#include <ccl/simulate.hpp>
#include <ccl/topo/configured.hpp>
#include <ccl/topo/connect.hpp>
#include <ccl/topo/draw.hpp>
#include <ccl/transport/socket.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string_view>
#include <type_traits>
#include <utility>

#include "comm/state.hpp"
#include "support/played/calls.hpp"
#include "support/room/calls.hpp"
#include "support/room/room.hpp"
#include "support/room/traffic.hpp"

using namespace ccl;
using namespace ccl::test;
using room::graph_of_host;
using room::moved_by;
using room::small;
using room::Ways;

namespace {
/// Shapes of which two hosts are enough: their NICs are those of another shape, in another order,
/// or too many for the cores of a test machine.
bool left_out_of_four_hosts(const room::Shape& shape) {
#if defined(CCL_TEST_LONG)
  return shape.nics > 8;
#else
  return shape.name != std::string_view{"dgx"} && shape.name != std::string_view{"one-sided"};
#endif
}

/// Bytes of each NIC, as [host * nics + nic], that the simulator counts.
template <class Op, class Algo>
std::vector<room::Traffic> simulated(const room::Shape& shape, int count, Index bytes,
                                     const Plan& plan, int distance, int domain_hosts = 1) {
  const auto nets = topo::configured_nets();
  if (!nets) FAIL(nets.error().what);
  const auto cluster = sim::Cluster::of(graph_of_host(shape), count, {}, *nets, domain_hosts);
  if (!cluster) FAIL(cluster.error().what);
  sim::Options options;
  options.plan = plan;
  options.distance = distance;
  const auto folded = sim::simulate<Op, Algo, Simple>(*cluster, bytes, options);
  options.every_node = true;
  const auto report = sim::simulate<Op, Algo, Simple>(*cluster, bytes, options);
  if (!report || !folded) FAIL((report ? folded : report).error().what);
  std::vector<room::Traffic> moved(std::size_t(count * shape.nics));
  const auto whole = [](double number) { return std::uint64_t(std::llround(number)); };
  for (const sim::NicLoad& nic : report->nics) {
    moved[std::size_t(nic.node * shape.nics + nic.device)] = {whole(nic.sent), whole(nic.received)};
  }
  // A node that stands for others has their bytes.
  for (const sim::NicLoad& nic : folded->nics) {
    const auto& same = moved[std::size_t(nic.node * shape.nics + nic.device)];
    CHECK(whole(nic.sent) == same.sent);
    CHECK(whole(nic.received) == same.received);
  }
  return moved;
}
}  // namespace

TEST_CASE("the simulator moves the bytes by each NIC that hosts which are played move") {
  const int count = GENERATE(2, 4);
  for (const room::Shape& shape :
       {room::dgx(), room::ndv4(), room::p5(), room::two_nics(), room::one_sided()}) {
    if (count > 2 && left_out_of_four_hosts(shape)) continue;
    INFO(shape.name << ", " << count << " hosts");
    room::Room hosts{shape, count};
    auto ranks = hosts.create_ranks();
    if (!ranks[0]) FAIL(ranks[0].error().message());
    const int rings = ranks[0]->ring_count(), all = int(ranks.size());
    const auto compare = [&]<class Op, class Algo>(Op, Algo, Index bytes, const Plan& plan,
                                                   auto calls, int distance = 1) {
      const auto moved =
          moved_by(hosts, fmt::format("{} by {}", Op::name, Algo::name).c_str(), calls);
      const auto counted = simulated<Op, Algo>(shape, count, bytes, plan, distance);
      for (std::size_t n = 0; n < moved.size(); ++n) {
        INFO(Op::name << ", " << Algo::name << ", host " << int(n) / shape.nics << ", NIC "
                      << int(n) % shape.nics);
        CHECK(counted[n].sent == moved[n].sent);
        CHECK(counted[n].received == moved[n].received);
      }
    };
    const Index share = 1024;  // a channel is worth 4 KiB
    const Plan by_rings = small(rings), by_trees = small(2 * rings);
    const Plan by_pairs = small(std::max(2, shape.nics / shape.gpus));
    const Index block = rings * share, message = by_pairs.channels * share;
    compare(AllReduce{}, Ring{}, block * all * 4, by_rings,
            [&] { room::rings::all_reduces(ranks, block * all, by_rings, 1); });
    compare(AllReduce{}, Tree{}, block * 32, by_trees,
            [&] { room::trees::all_reduces(ranks, block * 8, by_trees, 1); });
    compare(AllGather{}, Ring{}, block * all * 4, by_rings,
            [&] { room::rings::all_gathers(ranks, block, by_rings, 1); });
    compare(ReduceScatter{}, Ring{}, block * all * 4, by_rings,
            [&] { room::rings::reduce_scatters(ranks, block, by_rings, 1); });
    compare(AllToAll{}, Pairwise{}, message * all * 4, by_pairs,
            [&] { room::pairs::all_to_alls(ranks, message, by_pairs, 1); });
    compare(
        SendRecv{}, Pairwise{}, message * 4, by_pairs,
        [&] { room::pairs::send_recvs(ranks, message, by_pairs, 1, shape.gpus); }, shape.gpus);
  }
}

TEST_CASE("the simulator relays messages where hosts which are played do") {
  const char* const level = GENERATE("0", "2");
  const Environment chosen{"CCL_P2P_PXN_LEVEL", level};
  room::Room hosts{room::dgx(), 2};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const Index message = 2048;
  // GPU g sends to GPU g - 1 of the other host, but GPU 0 to GPU 7 of its own.
  const auto moved = moved_by(hosts, "SendRecv with another rail",
                              [&] { room::pairs::send_recvs(ranks, message, small(1), 1, 7); });
  const auto counted = simulated<SendRecv, Pairwise>(hosts.shape(), 2, message * 4, small(1), 7);
  for (std::size_t n = 0; n < moved.size(); ++n) {
    INFO("level " << level << ", host " << n / 8 << ", NIC " << n % 8);
    CHECK(counted[n].sent == moved[n].sent);
    CHECK(counted[n].received == moved[n].received);
  }
}

TEST_CASE("the simulator joins the hosts of NVLink domains as communicators do") {
  constexpr int count = 4, gpus = 2;
  const int domain_hosts = GENERATE(2, 4);
  INFO("domains of " << domain_hosts << " hosts");
  room::Shape shape = room::dgx();
  shape.gpus = gpus;
  std::vector<room::Shape> shapes(count, shape);
  for (int h = 0; h < count; ++h) {
    shapes[std::size_t(h)].fabric = fmt::format("1:{}", h / domain_hosts);
  }
  room::Room hosts{shapes, std::vector<int>(count, gpus)};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const auto cluster = sim::Cluster::of(graph_of_host(shape), count, {}, {}, domain_hosts);
  if (!cluster) FAIL(cluster.error().what);
  const int all = int(ranks.size()), rings = ranks[0]->ring_count();
  const topo::Arrangement& runs = detail::Access::state(*ranks[0])->identity.arrangement();
  CHECK(runs.machine_count() == cluster->whole().machine_count());
  REQUIRE(runs.ring_count() == cluster->whole().ring_count());
  for (int c = 0; c < rings; ++c) CHECK(runs.ring(c) == cluster->whole().ring(c));
  REQUIRE(runs.tree_count() == cluster->whole().tree_count());
  for (int rank = 0; rank < all; ++rank) {
    for (int c = 0; c < 2 * runs.tree_count(); ++c) {
      const TreePosition ours = runs.tree(rank, -1, c), theirs = cluster->whole().tree(rank, -1, c);
      CHECK(ours.up == theirs.up);
      CHECK(std::equal(ours.down, ours.down + TreePosition::arity, theirs.down));
    }
  }
  std::vector<Plan> plans(ranks.size());
  played::on_each(ranks, [&](const played::Rank& rank) -> std::string {
    const auto made = Collective<AllReduce, Ring, Simple, Ways>::create(rank.comm);
    if (made) plans[std::size_t(rank.rank)] = made->plan();
    return made ? std::string{} : made.error().message();
  });
  const auto report = sim::simulate<AllReduce, Ring, Simple>(*cluster, 1 << 28);
  if (!report) FAIL(report.error().what);
  CHECK(report->plans[0].channels == plans[0].channels);
  CHECK(report->plans[0].slot_bytes == plans[0].slot_bytes);
  const auto compare = [&]<class Op, class Algo>(Op, Algo, Index bytes, const Plan& plan,
                                                 auto calls, int distance = 1) {
    const auto moved =
        moved_by(hosts, fmt::format("{} by {}", Op::name, Algo::name).c_str(), calls);
    const auto counted = simulated<Op, Algo>(shape, count, bytes, plan, distance, domain_hosts);
    for (std::size_t n = 0; n < moved.size(); ++n) {
      INFO(Op::name << ", " << Algo::name << ", host " << int(n) / shape.nics << ", NIC "
                    << int(n) % shape.nics);
      CHECK(counted[n].sent == moved[n].sent);
      CHECK(counted[n].received == moved[n].received);
    }
  };
  const Plan by_rings = small(rings), by_trees = small(2 * rings), by_pairs = small(2);
  const Index block = rings * 1024, message = 2048;
  compare(AllReduce{}, Ring{}, block * all * 4, by_rings,
          [&] { room::rings::all_reduces(ranks, block * all, by_rings, 1); });
  compare(AllReduce{}, Tree{}, block * 32, by_trees,
          [&] { room::trees::all_reduces(ranks, block * 8, by_trees, 1); });
  compare(AllToAll{}, Pairwise{}, message * all * 4, by_pairs,
          [&] { room::pairs::all_to_alls(ranks, message, by_pairs, 1); });
  compare(
      SendRecv{}, Pairwise{}, message * 4, by_pairs,
      [&] { room::pairs::send_recvs(ranks, message, by_pairs, 1, 3); }, 3);
}

TEST_CASE("rings have the channels that their NICs need over RDMA, as the simulator says") {
  const auto plans = [](auto by, const char* net) {
    using By = typename decltype(by)::type;
    room::Room hosts{room::dgx(), 2};
    const Environment chosen{"CCL_NET", net};
    auto ranks = hosts.create_ranks();
    if (!ranks[0]) FAIL(ranks[0].error().message());
    std::vector<Plan> found(ranks.size());
    played::on_each(ranks, [&](const played::Rank& rank) -> std::string {
      const auto made = Collective<AllReduce, Ring, Simple, By>::create(rank.comm);
      if (!made) return made.error().message();
      found[std::size_t(rank.rank)] = made->plan();
      std::string problem = played::all_reduce(rank, *made, 70'000, 2);
      return problem;
    });
    for (const Plan& plan : found) CHECK(plan == found[0]);
    return found[0];
  };
  const Plan by_rdma = plans(std::type_identity<Ways>{}, "IB");
  CHECK(by_rdma.channels == 32);
  const auto cluster = sim::Cluster::of(graph_of_host(room::dgx()), 2);
  if (!cluster) FAIL(cluster.error().what);
  const auto report = sim::simulate<AllReduce, Ring, Simple>(*cluster, 1 << 28);
  if (!report) FAIL(report.error().what);
  CHECK(report->plans[0].channels == by_rdma.channels);
  CHECK(report->plans[0].slot_bytes == by_rdma.slot_bytes);
  using Tcp = AnyOf<P2pTransport, IbTransport, SocketTransport>;
  const Plan by_tcp = plans(std::type_identity<Tcp>{}, "Socket");
  CHECK(by_tcp.channels == 8);
  CHECK(by_tcp.channels * by_tcp.slot_bytes == by_rdma.channels * by_rdma.slot_bytes);
}

TEST_CASE("the rings and trees that ccl_topo shows are those of the communicator") {
  const int count = GENERATE(1, 2, 4);
  for (const room::Shape& shape : {room::dgx(), room::ndv4(), room::one_sided(), room::pcie()}) {
    INFO(shape.name << ", " << count << " hosts");
    room::Room hosts{shape, count};
    const auto ranks = hosts.create_ranks();
    if (!ranks[0]) FAIL(ranks[0].error().message());
    const auto cluster = sim::Cluster::of(graph_of_host(shape), count);
    if (!cluster) FAIL(cluster.error().what);
    const topo::JoinedChannels shown = topo::channels_of(cluster->whole());
    CHECK(topo::check(shown, int(ranks.size())) == "");
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const topo::Arrangement& runs = detail::Access::state(*ranks[r])->identity.arrangement();
      CHECK(int(shown.rings.size()) == runs.ring_count());
      CHECK(int(shown.trees.size()) == 2 * runs.tree_count());
      for (int c = 0; c < int(shown.rings.size()); ++c) {
        CHECK(shown.rings[std::size_t(c)] == runs.ring(c));
      }
      for (int c = 0; c < int(shown.trees.size()); ++c) {
        const TreePosition at = runs.tree(int(r), -1, c);
        const topo::TreeLinks& links = shown.trees[std::size_t(c)][r];
        CHECK(links.up == at.up);
        CHECK(std::equal(links.down.begin(), links.down.end(), at.down));
      }
    }
  }
}

TEST_CASE("the simulator and the chooser put compositions into one order") {
  const int count = GENERATE(2, 4);
  room::Room hosts{room::dgx(), count};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const std::array facts{detail::facts_of<AllReduce, Candidate<Ring, LL>, Ways>(),
                         detail::facts_of<AllReduce, Candidate<Ring, LL128>, Ways>(),
                         detail::facts_of<AllReduce, Candidate<Ring, Simple>, Ways>(),
                         detail::facts_of<AllReduce, Candidate<Tree, LL>, Ways>(),
                         detail::facts_of<AllReduce, Candidate<Tree, LL128>, Ways>(),
                         detail::facts_of<AllReduce, Candidate<Tree, Simple>, Ways>()};
  std::vector<Index> sizes;
  for (Index bytes = 1 << 10; bytes <= 1 << 30; bytes *= 4) sizes.push_back(bytes);
  std::vector<std::vector<double>> predicted(sizes.size());
  played::on_each(ranks, [&](const played::Rank& rank) -> std::string {
    const auto made = detail::Chooser::create(rank.comm, {AllReduce::name, facts, false, true});
    if (!made) return made.error().message();
    if (rank.rank != 0) return {};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      for (int c = 0; c < int(facts.size()); ++c)
        predicted[i].push_back(made->predict(c, sizes[i]));
    }
    return {};
  });
  const auto cluster = sim::Cluster::of(graph_of_host(hosts.shape()), count);
  if (!cluster) FAIL(cluster.error().what);
  // The replay has the fill of a tree's slots, which the chooser's closed form has not.
  constexpr double apart = 2, worst_choice = 1.25;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<double> us;
    for (const detail::CandidateFacts& one : facts) {
      sim::Options options;
      options.budget = 200'000;
      const auto report =
          sim::simulate(*cluster, {AllReduce::name, one.algo, one.proto}, sizes[i], options);
      if (!report) FAIL(report.error().what);
      us.push_back(report->us);
    }
    std::string text =
        fmt::format("{} hosts, {} bytes, us of the chooser and the simulator:", count, sizes[i]);
    for (std::size_t c = 0; c < facts.size(); ++c) {
      text += fmt::format(" {} {:.0f} {:.0f},", facts[c].name(), predicted[i][c], us[c]);
    }
    INFO(text);
    for (std::size_t a = 0; a < facts.size(); ++a) {
      for (std::size_t b = 0; b < facts.size(); ++b) {
        if (us[a] * apart >= us[b]) continue;
        INFO(facts[a].name() << " before " << facts[b].name() << " " << us[b] / us[a]);
        CHECK(predicted[i][a] < predicted[i][b]);
      }
    }
    const auto best =
        std::min_element(predicted[i].begin(), predicted[i].end()) - predicted[i].begin();
    CHECK(us[std::size_t(best)] < worst_choice * *std::min_element(us.begin(), us.end()));
  }
}

TEST_CASE("choices between hosts go by the network that the topology found") {
  room::Room hosts{room::dgx(), 2};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  using Simply = Candidate<Ring, Simple>;
  using Flagged = Candidate<Ring, LL>;
  const std::array facts{detail::facts_of<AllReduce, Simply, Ways>(),
                         detail::facts_of<AllReduce, Flagged, Ways>()};
  std::vector<std::string> reasons(ranks.size());
  played::on_each(ranks, [&](const played::Rank& rank) -> std::string {
    const auto made = detail::Chooser::create(rank.comm, {AllReduce::name, facts, false, true});
    if (!made) return made.error().message();
    const int small_one = made->pick(1024), large_one = made->pick(Index{1} << 30);
    if (facts[std::size_t(small_one)].name() != "Ring/LL") return "LL is not for 1 KiB";
    if (facts[std::size_t(large_one)].name() != "Ring/Simple") return "Simple is not for 1 GiB";
    reasons[std::size_t(rank.rank)] = made->explain(Index{1} << 30, large_one, small(8)).text();
    return {};
  });
  INFO(reasons[0]);
  // 8 rings of 45 GB/s: 2 * 15 / 16 GiB over 325 GB/s of NVLink, which is less.
  CHECK(reasons[0].find("NVLink of 371 GB/s inside a host") != std::string::npos);
  CHECK(reasons[0].find("RDMA of 360 GB/s between hosts") != std::string::npos);
  CHECK(reasons[15] == reasons[0]);
}
