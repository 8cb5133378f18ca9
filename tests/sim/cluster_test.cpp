#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/sim/cluster.hpp>
#include <ccl/simulate.hpp>
#include <ccl/topo/xml.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/graph_of.hpp"
#include "support/room/shapes.hpp"

namespace topo = ccl::topo;
using namespace ccl;
using namespace ccl::test;
using sim::Cluster;

namespace {

/// A machine of three GPUs, of which the second has the attributes `second`.
topo::Graph three_gpus(const std::string& second) {
  const auto gpu = [](int bus, const std::string& attributes) {
    return fmt::format(R"(<pci busid="0000:{}:00.0" link_speed="16 GT/s" link_width="16">
                       <gpu dev="{}" sm="80" {}/></pci>)",
                       bus, bus, attributes);
  };
  const auto file = topo::parse_xml(
      R"(<system><cpu numaid="0" arch="x86_64" vendor="GenuineIntel">)" + gpu(10, R"(rank="0")") +
          gpu(11, second) + gpu(12, R"(rank="2")") + "</cpu></system>",
      "machine");
  REQUIRE(file);
  const auto loaded = topo::to_graph(*file);
  if (!loaded) FAIL(loaded.error().what);
  return loaded->graph;
}

/// Host of 8 GPUs and 8 NICs. Its GPUs are in the clique `fabric`, if it is not empty.
topo::Graph host(const std::string& fabric, bool nics = true) {
  room::Shape shape = room::dgx();
  shape.fabric = fabric;
  for (int n = 0; n < shape.nics && !nics; ++n) shape.absent.push_back(n);
  return graph_of(room::topology(
      shape, 0, shape.gpus, [](int gpu) { return fmt::format("0000:{:02x}:00.0", 0x10 + gpu); }));
}
Cluster cluster_of(const topo::Graph& machine, int nodes, int domain_nodes = Cluster::by_file) {
  auto made = Cluster::of(machine, nodes, {}, {}, domain_nodes);
  if (!made) FAIL(made.error().what);
  return *std::move(made);
}
Error refusal(const Result<Cluster>& made) {
  if (made) FAIL("not refused");
  return made.error();
}

template <class Op, class Algo>
sim::Report run(const Cluster& cluster, Index bytes, bool every_node = false) {
  sim::Options options;
  options.every_node = every_node;
  options.distance = std::min(cluster.locals(), cluster.ranks() - 1);
  auto report = sim::simulate<Op, Algo, Simple>(cluster, bytes, options);
  if (!report) FAIL(report.error().what);
  return *std::move(report);
}
/// Bytes that all NICs of all nodes send.
double sent(const sim::Report& report) {
  double all = 0;
  for (const sim::NicLoad& nic : report.nics) all += nic.sent;
  return report.period > 0 ? all * report.nodes / report.period : all;
}

}  // namespace

TEST_CASE("nodes are an NVLink domain as the file says, or as asked") {
  const topo::Graph in_clique = host("1:0"), alone = host("");
  const auto check = [](const Cluster& made, int domain_nodes, int machines) {
    CHECK(made.domain_nodes() == domain_nodes);
    CHECK(made.whole().machine_count() == machines);
    CHECK(made.networked() == (machines > 1));
  };
  check(cluster_of(in_clique, 4), 4, 1);
  check(cluster_of(in_clique, 4, 1), 1, 4);
  check(cluster_of(in_clique, 4, 2), 2, 2);
  check(cluster_of(in_clique, 5, 2), 2, 3);
  check(cluster_of(alone, 4), 1, 4);
  check(cluster_of(alone, 4, 4), 4, 1);
  topo::PathRules no_p2p;
  no_p2p.p2p_disabled = true;
  check(*Cluster::of(in_clique, 4, no_p2p), 1, 4);
}

TEST_CASE("nodes that NVLink cannot join are refused by the reason") {
  const Error many = refusal(Cluster::of(host("1:0"), 4, {}, {}, 5));
  CHECK(many.code == Errc::invalid_argument);
  CHECK(mentions(many.what, "5 nodes of 4"));
  topo::PathRules no_p2p;
  no_p2p.p2p_disabled = true;
  CHECK(mentions(refusal(Cluster::of(host("1:0"), 4, no_p2p, {}, 2)).what, "P2P is disabled"));
  const Error no_switch = refusal(Cluster::of(three_gpus(R"(rank="1")"), 2, {}, {}, 2));
  CHECK(no_switch.code == Errc::no_transport);
  CHECK(mentions(no_switch.what, "reaches no NVSwitch"));
  // A domain needs no NIC, and several do.
  CHECK(cluster_of(host("1:0", false), 2).ranks() == 16);
  CHECK(mentions(refusal(Cluster::of(host("1:0", false), 4, {}, {}, 2)).what, "reaches no NIC"));
}

TEMPLATE_TEST_CASE("rings and trees leave a domain once, however many hosts it has", "", Ring,
                   Tree) {
  const topo::Graph machine = host("");
  const Index bytes = Index{1} << 26;
  const auto apart = run<AllReduce, TestType>(cluster_of(machine, 4, 1), bytes);
  const auto joined = run<AllReduce, TestType>(cluster_of(machine, 4, 2), bytes);
  const auto whole = run<AllReduce, TestType>(cluster_of(machine, 4, 4), bytes);
  CHECK(sent(apart) > 0);
  const double crossings = std::is_same_v<TestType, Ring> ? 2.0 : 3.0;  // 4 of 4; 3 and 1
  CHECK(std::abs(sent(apart) / sent(joined) - crossings) < 0.01 * crossings);
  CHECK(whole.nics.empty());
  CHECK(whole.us < joined.us);
  CHECK(joined.domain_nodes == 2);
  // NVLink carries as much between the hosts of a domain as inside one.
  const auto one = run<AllReduce, TestType>(cluster_of(machine, 1), bytes);
  CHECK(whole.bus_gbs > 0.8 * one.bus_gbs);
}

TEST_CASE("a domain that stands for the others has their bytes and their time") {
  const topo::Graph machine = host("");
  const auto compare = [&]<class Op, class Algo>(Op, Algo, Index bytes, bool same_time) {
    for (const int domain_nodes : {2, 3}) {
      const Cluster cluster = cluster_of(machine, 6, domain_nodes);
      const auto folded = run<Op, Algo>(cluster, bytes), all = run<Op, Algo>(cluster, bytes, true);
      INFO(Op::name << ", " << Algo::name << ", domains of " << domain_nodes);
      CHECK(folded.period % domain_nodes == 0);
      CHECK(folded.period > 0);
      CHECK(all.period == 0);
      CHECK(std::abs(sent(folded) - sent(all)) < 1);
      if (same_time) CHECK(std::abs(folded.us - all.us) < 0.02 * all.us);
      for (const sim::NicLoad& nic : folded.nics) {
        const auto same = std::find_if(all.nics.begin(), all.nics.end(), [&](const auto& other) {
          return other.node == nic.node && other.device == nic.device;
        });
        REQUIRE(same != all.nics.end());
        CHECK(std::abs(same->sent - nic.sent) < 1);
        CHECK(std::abs(same->received - nic.received) < 1);
      }
    }
  };
  compare(AllGather{}, Ring{}, Index{1} << 22, true);
  compare(SendRecv{}, Pairwise{}, Index{1} << 22, true);
  compare(AllToAll{}, Pairwise{}, Index{1} << 22, false);
}

TEST_CASE("a protocol that needs whole lines of 128 bytes does not run between hosts of a domain") {
  const auto report =
      sim::simulate<AllReduce, Ring, LL128>(cluster_of(host("1:0"), 2), Index{1} << 20);
  REQUIRE(!report);
  CHECK(report.error().code == Errc::not_supported);
  CHECK(mentions(report.error().what, "lines of 128 bytes"));
}

TEST_CASE("a cluster takes the graphs of a file, as a communicator does") {
  const topo::Graph machine = host("");
  topo::XmlFile file;
  file.name = "graphs.xml";
  topo::ChannelGraph ring = cluster_of(machine, 2).plan().ring;
  ring.channels.assign(2, {{0, 7, 1, 6, 2, 5, 3, 4}, 3, 3});
  file.root = topo::to_xml({ring}, machine);
  const auto with = Cluster::of(machine, 2, {}, {}, 1, &file);
  if (!with) FAIL(with.error().what);
  CHECK(with->plan().ring.channels == ring.channels);
  CHECK(with->whole().ring_count() == 2);
  for (int c = 0; c < 2; ++c) {
    CHECK(with->whole().ring(c) ==
          std::vector{0, 7, 1, 6, 2, 5, 3, 4, 8, 15, 9, 14, 10, 13, 11, 12});
  }
  const auto report = run<AllReduce, Ring>(*with, 1 << 20, true);
  REQUIRE(report.nics.size() == 2);
  for (const sim::NicLoad& nic : report.nics) CHECK(nic.device == 3);

  file.root.children.clear();
  const Error none = refusal(Cluster::of(machine, 2, {}, {}, 1, &file));
  CHECK(mentions(none.what, "CCL_GRAPH_FILE: graphs.xml has no <graph>"));
}

TEST_CASE("a node whose GPUs reach each other over the network alone is no node of a cluster") {
  topo::PathRules rules;
  rules.p2p_disabled = rules.shm_disabled = true;
  const Error none = refusal(Cluster::of(host(""), 2, rules));
  CHECK(none.code == Errc::not_supported);
  CHECK(mentions(none.what, "P2P and shared memory are disabled"));
  rules.p2p_disabled = false;  // three_gpus(): only a CPU is between them
  const Error far = refusal(Cluster::of(three_gpus(R"(rank="1")"), 1, rules));
  CHECK(mentions(far.what, "their path is none for P2P"));
}

TEST_CASE("a GPU without rank takes no part in a cluster") {
  const auto cluster = ccl::sim::Cluster::of(three_gpus(""), 1);
  if (!cluster) FAIL(cluster.error().what);
  CHECK(cluster->locals() == 2);
  CHECK(cluster->plan().ring.channels.at(0).ranks.size() == 2);
  const topo::Graph& machine = cluster->machine();
  CHECK(machine.nodes[machine.gpu_of_rank(1)].gpu.dev == 12);

  const auto all = ccl::sim::Cluster::of(three_gpus(R"(rank="1")"), 1);
  REQUIRE(all);
  CHECK(all->locals() == 3);
}
