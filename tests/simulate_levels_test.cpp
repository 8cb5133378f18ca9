// Replayed algorithms of several levels, and messages, compared with the closed form of their cost,
// on machines of eight GPUs.
#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/simulate.hpp>
#include <ccl/topo/xml.hpp>

#include <cmath>
#include <map>

#include "support/catch.hpp"
#include "support/simulated.hpp"

using namespace ccl;
using namespace ccl::test;
using sim::Cluster;
using sim::Options;
using sim::simulate;

TEST_CASE("simulate: levels go one after the other, rails side by side") {
  const int nodes = 4;
  const Cluster cluster = machines(nodes);
  const int locals = cluster.locals();
  Options options = one_channel(128 << 10);
  options.net_us = 20;
  const Index share = 16 << 10, bytes = share * locals;  // a rail's; in pieces for its ring
  const auto both = run<AllReduce, Hierarchical<Ring, Ring>, Simple>(cluster, bytes, options);
  const auto cost = of<Simple>(detail::Path::nvlink);
  const double s = lanes_us<Simple>(double(share)), piece = double(share) / nodes;
  double wire = 0;
  for (const auto& load : both.links) {
    if (load.name.rfind("NIC", 0) == 0) wire = piece / (load.gbs * 1e3);
  }
  // Three launches. Inside, (locals - 1) hops of a share, twice; between nodes, a ring of pieces.
  const double inside = (locals - 1) * (cost.hop_us + s) + s;
  const double between = 2 * (nodes - 1) * (*options.net_us + lanes_us<Simple>(piece) + wire) +
                         lanes_us<Simple>(piece);
  CHECK(both.us == Approx(3 * cost.base_us + 2 * inside + between).epsilon(0.03));
  CHECK(both.plans.size() == 3);
  CHECK(both.period == 1);
  int nics = 0;
  for (const auto& load : both.links) {
    if (load.name.find("-> NET") == std::string::npos) continue;
    ++nics;
    CHECK(load.bytes == Approx(2.0 * (nodes - 1) / nodes * double(share)));
  }
  CHECK(nics == locals);  // all rails, where a flat ring of one channel has one
  // Levels are faster across many nodes.
  const Cluster many = machines(64);
  CHECK(run<AllReduce, Hierarchical<Ring, Tree>, Simple>(many, 1 << 20).us <
        run<AllReduce, Ring, Simple>(many, 1 << 20).us);
  CHECK(run<AllGather, Hierarchical<Ring, Ring>, Simple>(many, 64 << 20).us <
        run<AllGather, Ring, Simple>(many, 64 << 20).us);
  CHECK(run<AllReduce, Hierarchical<Ring, Ring>, Simple>(machines(1), 1 << 20).us ==
        Approx(run<AllReduce, Ring, Simple>(machines(1), 1 << 20).us));
}

TEST_CASE("simulate: two levels of rings cost the closed form of each") {
  const int nodes = 4;
  const Cluster cluster = machines(nodes);
  const int locals = cluster.locals();
  Options options = one_channel(128 << 10);
  options.net_us = 20;
  const Index piece = 4096, bytes = piece * nodes * locals;
  const auto report = run<AllReduce, Hierarchical<Ring, Ring>, Simple>(cluster, bytes, options);
  const auto near = of<Simple>(detail::Path::nvlink);
  const double inside_s = lanes_us<Simple>(double(piece * nodes)),
               across_s = lanes_us<Simple>(double(piece));
  double wire = 0;
  for (const auto& load : report.links) {
    if (load.name.rfind("NIC", 0) == 0) wire = double(piece) / (load.gbs * 1e3);
  }
  const double inside = near.base_us + (locals - 1) * (near.hop_us + inside_s) + inside_s;
  const double across =
      near.base_us + 2 * (nodes - 1) * (*options.net_us + across_s + wire) + across_s;
  CHECK(report.us == Approx(2 * inside + across).epsilon(0.01));
  const double sent = 2.0 * (locals - 1) / locals * double(bytes) +
                      2.0 * (nodes - 1) / nodes * double(bytes) / locals;
  CHECK(report.sent_bytes == Approx(sent * nodes * locals));
}

TEST_CASE("simulate: shares of all nodes go through a node in a call for each") {
  const int nodes = 4;
  const Cluster cluster = machines(nodes);
  const int locals = cluster.locals();
  Options options = one_channel(128 << 10);
  options.net_us = 20;
  const Index share = 4096, bytes = share * nodes * locals;
  const auto gather = run<AllGather, Hierarchical<Ring, Ring>, Simple>(cluster, bytes, options);
  const auto near = of<Simple>(detail::Path::nvlink);
  const double s = lanes_us<Simple>(double(share));
  double wire = 0;
  for (const auto& load : gather.links) {
    if (load.name.rfind("NIC", 0) == 0) wire = double(share) / (load.gbs * 1e3);
  }
  const double inside = near.base_us + (locals - 1) * (near.hop_us + s) + s;
  const double across = near.base_us + (nodes - 1) * (*options.net_us + s + wire) + s;
  CHECK(gather.us == Approx(nodes * inside + across).epsilon(0.01));
  CHECK(gather.bus_gbs ==
        Approx(double(bytes - bytes / cluster.ranks()) / (gather.us * 1e3)).epsilon(1e-6));
  // Each share arrives once at each rank.
  CHECK(gather.sent_bytes == Approx(double(bytes) * (cluster.ranks() - 1)));
  const auto scatter =
      run<ReduceScatter, Hierarchical<Ring, Ring>, Simple>(cluster, bytes, options);
  CHECK(scatter.us == Approx(gather.us).epsilon(0.01));
}

TEST_CASE("simulate: levels replayed by themselves are the whole") {
  const Cluster cluster = machines(6);
  Options all;
  all.every_node = true;
  const auto apart = run<AllReduce, Hierarchical<Ring, Tree>, LL128>(cluster, 4 << 20);
  const auto whole = run<AllReduce, Hierarchical<Ring, Tree>, LL128>(cluster, 4 << 20, all);
  CHECK(apart.slices < whole.slices / 2);
  CHECK(apart.us == Approx(whole.us).epsilon(0.03));
  CHECK(apart.sent_bytes == Approx(whole.sent_bytes));
  CHECK(apart.bus_gbs == Approx(whole.bus_gbs).epsilon(0.03));
  CHECK(apart.plans == whole.plans);
  CHECK(apart.links[0].name == whole.links[0].name);
  CHECK(apart.links[0].bytes == Approx(whole.links[0].bytes).epsilon(0.01));
}

TEST_CASE("simulate: a message between neighbors costs its lanes twice and a hop") {
  const Cluster cluster = machines(1);
  const auto cost = of<Simple>(detail::Path::nvlink);
  const Index bytes = 32 << 10;
  const double s = lanes_us<Simple>(double(bytes));
  const auto one = run<SendRecv, Pairwise, Simple>(cluster, bytes, one_channel(128 << 10));
  CHECK(one.us == Approx(cost.base_us + 2 * s + cost.hop_us).epsilon(1e-6));
  CHECK(one.sent_bytes == Approx(double(bytes) * cluster.ranks()));
  CHECK(one.steps == 2);
}

TEST_CASE("simulate: an exchange of all pairs sends each message once, and repeats by nodes") {
  const Cluster cluster = machines(4);
  const int n = cluster.ranks();
  const Index message = 64 << 10;
  Options all;
  all.every_node = true;
  const auto folded = run<AllToAll, Pairwise, Simple>(cluster, message * n);
  const auto whole = run<AllToAll, Pairwise, Simple>(cluster, message * n, all);
  CHECK(folded.period == 1);
  CHECK(whole.period == 0);
  CHECK(folded.sent_bytes == Approx(double(message) * n * (n - 1)));
  CHECK(whole.sent_bytes == Approx(folded.sent_bytes));
  // Pieces that reach a NIC at one time pass in another order.
  CHECK(folded.us == Approx(whole.us).epsilon(0.05));
  CHECK(folded.nics.size() == 8);
  CHECK(whole.nics.size() == 32);
  for (const auto& nic : whole.nics) {
    CHECK(nic.sent == Approx(double(message) * 24));  // to the ranks of three other nodes
    CHECK(nic.received == Approx(nic.sent));
  }
  // More messages than a launch holds, and more slices than the budget.
  Options little;
  little.budget = 50'000;
  const Cluster many = machines(64);
  const auto part = run<AllToAll, Pairwise, LL128>(many, Index{1} << 30, little);
  CHECK(part.plans.size() == 8);  // 1,022 messages and two to itself, 144 at a time
  CHECK(part.extended);
  const double each = std::ceil(double(Index{1} << 30) / many.ranks());
  CHECK(part.sent_bytes == Approx(each * many.ranks() * (many.ranks() - 1)).epsilon(1e-9));
  for (const auto& link : part.links) CHECK(link.busy < 1 + 1e-9);
}

TEST_CASE("simulate: messages leave by the receiver's rail only if relays are allowed") {
  const auto loaded =
      topo::load_graph(CCL_SOURCE_DIR "/docs/validation/machines/eight_gpus_eight_nics.xml");
  REQUIRE(loaded);
  const auto senders = [&](bool relays) {
    topo::NetRules nets;
    nets.relays_messages = relays;
    const auto cluster = Cluster::of(loaded->graph, 2, {}, nets);
    REQUIRE(cluster);
    Options options;
    options.distance = 7;  // GPU g of one node to GPU g - 1 of the other, and within a node
    std::map<int, double> sent;
    for (const auto& nic : run<SendRecv, Pairwise, Simple>(*cluster, 1 << 20, options).nics) {
      if (nic.sent > 0) sent[nic.device] += nic.sent;
    }
    return sent;
  };
  CHECK(senders(true).count(7) == 0);
  CHECK(senders(true).count(0) == 1);
  CHECK(senders(false).count(0) == 0);
  CHECK(senders(false).count(7) == 1);
}
