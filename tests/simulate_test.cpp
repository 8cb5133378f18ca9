// Replayed algorithms compared with the closed form of their cost, on a machine of eight GPUs.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/checked.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/simulate.hpp>
#include <ccl/topo/xml.hpp>
#include <ccl/traced.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>

#include "support/catch.hpp"
#include "support/graph_of.hpp"
#include "support/simulated.hpp"

using namespace ccl;
using namespace ccl::test;
using sim::Cluster;
using sim::Options;
using sim::simulate;

TEMPLATE_TEST_CASE("simulate: a ring of one node costs its closed form", "", Simple, LL, LL128) {
  const Cluster cluster = machines(1);
  const auto cost = of<TestType>(detail::Path::nvlink);
  const int n = cluster.ranks();
  REQUIRE(n == 8);
  const Index share = 32 << 10;
  const double s = lanes_us<TestType>(double(share));
  const auto options = one_channel(128 << 10);
  // Each step: a share through the lanes, then the hop. At the end the last one is taken in.
  const auto ring = run<AllReduce, Ring, TestType>(cluster, share * n, options);
  CHECK(ring.us == Approx(cost.base_us + 2 * (n - 1) * (cost.hop_us + s) + s).epsilon(1e-6));
  CHECK(ring.sent_bytes == Approx(2.0 * (n - 1) * double(share) * n));
  CHECK(ring.steps == 2 * (n - 1) + 1);
  CHECK(ring.position_classes == 1);
  for (const bool gather : {true, false}) {
    const auto half = gather ? run<AllGather, Ring, TestType>(cluster, share * n, options)
                             : run<ReduceScatter, Ring, TestType>(cluster, share * n, options);
    CHECK(half.us == Approx(cost.base_us + (n - 1) * (cost.hop_us + s) + s).epsilon(1e-6));
  }
  const auto chain = run<Broadcast, Ring, TestType>(cluster, share, options);
  CHECK(chain.us == Approx(cost.base_us + (n - 1) * (cost.hop_us + s) + s).epsilon(1e-6));
  CHECK(chain.position_classes == 3);  // root, middle, end
}

TEMPLATE_TEST_CASE("simulate: a tree of one node costs its closed form", "", Simple, LL, LL128) {
  const Cluster cluster = machines(1);
  const auto cost = of<TestType>(detail::Path::nvlink);
  const Index bytes = 32 << 10;
  const double s = lanes_us<TestType>(double(bytes));
  const auto options = one_channel(128 << 10);
  // 0 -> 4 -> 2, 6 -> 1, 3, 5, 7: three hops up and three down.
  const auto both = run<AllReduce, Tree, TestType>(cluster, bytes, options);
  CHECK(both.us == Approx(cost.base_us + 6 * (cost.hop_us + s) + s).epsilon(0.02));
  CHECK(both.position_classes == 4);  // root, inner nodes of two levels, leaves
  const auto down = run<Broadcast, Tree, TestType>(cluster, bytes, options);
  CHECK(down.us == Approx(cost.base_us + 3 * (cost.hop_us + s) + s).epsilon(0.02));
  const auto up = run<Reduce, Tree, TestType>(cluster, bytes, options);
  CHECK(up.us == Approx(down.us).epsilon(0.02));
  CHECK(both.sent_bytes == Approx(2.0 * 7 * double(bytes)));
}

TEST_CASE("simulate: a long message goes at the pace of the narrowest part") {
  const Cluster cluster = machines(1);
  const int n = cluster.ranks();
  const double bytes = 1 << 30;
  // One block is slower than the link, and waits for each hop; many do neither.
  const Index slot = 512 << 10;
  const auto cost = of<Simple>(detail::Path::nvlink);
  const double s = lanes_us<Simple>(double(slot)), rounds = bytes / double(slot * n);
  const auto one = run<AllReduce, Ring, Simple>(cluster, Index(bytes), one_channel(slot));
  CHECK(one.us ==
        Approx(cost.base_us + rounds * (2 * (n - 1) * (cost.hop_us + s) + s)).epsilon(1e-3));
  const double volume = 2.0 * (n - 1) / n * bytes;
  const auto all = run<AllReduce, Ring, Simple>(cluster, Index(bytes));
  const double link =
      cluster.machine()
          .links[std::size_t(cluster.paths().at(cluster.gpu(0), cluster.gpu(1)).links[0])]
          .bw;
  CHECK(all.us == Approx(volume / (link * 1e3)).epsilon(0.05));
  CHECK(all.links[0].busy > 0.95);
  CHECK(all.links[0].busy <= 1.0 + 1e-9);
  CHECK(all.links[0].bytes == Approx(volume));
}

TEST_CASE("simulate: a ring over nodes costs its hops, and each NIC carries its part") {
  const int nodes = 4;
  const Cluster cluster = machines(nodes);
  const int n = cluster.ranks(), locals = cluster.locals();
  Options options = one_channel(128 << 10);
  options.net_us = 20;
  const Index share = 4096;
  const auto report = run<AllReduce, Ring, Simple>(cluster, share * n, options);
  const auto inside = of<Simple>(detail::Path::nvlink);
  const double s = lanes_us<Simple>(double(share));
  // Once around, less one hop, twice. Between nodes a share is first in a slot, then on its way.
  double wire = 0;
  for (const auto& load : report.links) {
    if (load.name.rfind("NIC", 0) == 0) wire = double(share) / (load.gbs * 1e3);
  }
  const double around =
      nodes * (*options.net_us + s + wire) + nodes * (locals - 1) * (inside.hop_us + s);
  CHECK(report.us == Approx(inside.base_us + 2 * around * (n - 1) / n).margin(2 * *options.net_us));
  CHECK(report.period == 1);
  int nics = 0;
  for (const auto& load : report.links) {
    if (load.name.find("-> NET") == std::string::npos) continue;
    ++nics;
    CHECK(load.bytes == Approx(2.0 * (n - 1) * double(share)));
  }
  CHECK(nics == 1);
}

TEST_CASE("simulate: a tree over nodes hides its depth and the network's latency") {
  const Index slot = 512 << 10, chunks = 96;
  const double s = lanes_us<Simple>(double(slot));
  // Beyond 190 us the slots of a wire are used up before the first one comes back.
  for (const double net_us : {5.0, 50.0, 100.0}) {
    Options options = one_channel(slot);
    options.net_us = net_us;
    double two = 0;
    for (const int nodes : {2, 4, 16}) {
      INFO(nodes << " nodes, " << net_us << " us");
      const auto report = run<AllReduce, Tree, Simple>(machines(nodes), slot * chunks, options);
      // The pace of a rank's two steps for each chunk, and the depth of the tree once up and down.
      const double depth = std::log2(nodes) + 1;
      const double fill = 2 * depth * (net_us + 8 * (of<Simple>(detail::Path::nvlink).hop_us + s));
      CHECK(report.us > 2 * double(chunks) * s);
      CHECK(report.us < 2 * double(chunks) * s + fill);
      if (nodes == 2) two = report.us;
      CHECK(report.us < 1.5 * two);
    }
  }
}

TEST_CASE("simulate: one node stands for all where they repeat") {
  const Cluster cluster = machines(6);
  for (const Index bytes : {Index{64} << 10, Index{6} << 20}) {
    Options all;
    all.every_node = true;
    const auto folded = run<AllReduce, Ring, Simple>(cluster, bytes);
    const auto whole = run<AllReduce, Ring, Simple>(cluster, bytes, all);
    CHECK(folded.period == 1);
    CHECK(whole.period == 0);
    CHECK(folded.slices * 6 == whole.slices);
    CHECK(folded.us == Approx(whole.us).epsilon(1e-9));
    CHECK(folded.sent_bytes == Approx(whole.sent_bytes));
    CHECK(folded.sent_bytes == Approx(2.0 * (cluster.ranks() - 1) * double(bytes)).epsilon(1e-3));
    CHECK(folded.links[0].bytes == Approx(whole.links[0].bytes));
    CHECK(folded.links[0].name == whole.links[0].name);
  }
  CHECK(run<Broadcast, Ring, Simple>(cluster, 1 << 20).period == 0);
  CHECK(run<AllReduce, Tree, Simple>(cluster, 1 << 20).period == 0);
}

TEST_CASE("simulate: two nodes that name each other alike need not do the same") {
  // One GPU of each node: of two, one is the tree's root and the other its leaf.
  const auto loaded =
      topo::load_graph(CCL_SOURCE_DIR "/docs/validation/machines/eight_gpus_eight_nics.xml");
  REQUIRE(loaded);
  const topo::Paths paths = topo::compute_paths(loaded->graph);
  std::vector<char> keep(loaded->graph.nodes.size(), 1);
  const auto gpus = loaded->graph.of(topo::NodeType::gpu);
  for (std::size_t i = 1; i < gpus.size(); ++i) keep[std::size_t(gpus[i])] = 0;
  const auto cluster = Cluster::of(topo::select(loaded->graph, keep), 2);
  REQUIRE(cluster);
  const auto report = run<AllReduce, Tree, Simple>(*cluster, 4096, one_channel(4096));
  CHECK(report.period != 1);
  CHECK(report.steps == 2);
}

TEST_CASE("simulate: a chunk of 1 GiB is as long as its slices") {
  Options options = one_channel(Index{128} << 20);
  options.plan->slot_count = 16;
  const auto time = [&](int chunk_steps) {
    options.plan->chunk_steps = chunk_steps;
    return run<AllReduce, Ring, Simple>(machines(1), Index{64} << 30, options);
  };
  const auto shorter = time(4), whole = time(8);
  CHECK(whole.sent_bytes == shorter.sent_bytes);
  CHECK(whole.us > 0.9 * shorter.us);
}

TEST_CASE("simulate: beyond the budget, the pace of the first rounds is taken on") {
  const Cluster cluster = machines(4);
  const Index bytes = Index{1} << 30;
  Options little;
  little.budget = 20000;
  const auto check = [&](const sim::Report& whole, const sim::Report& part) {
    CHECK_FALSE(whole.extended);
    CHECK(part.extended);
    CHECK(part.slices < whole.slices / 2);
    CHECK(part.us == Approx(whole.us).epsilon(0.05));
    CHECK(part.sent_bytes == Approx(whole.sent_bytes).epsilon(1e-9));
    CHECK(part.links[0].bytes == Approx(whole.links[0].bytes).epsilon(1e-9));
  };
  check(run<AllReduce, Tree, Simple>(cluster, bytes),
        run<AllReduce, Tree, Simple>(cluster, bytes, little));
  check(run<AllReduce, Ring, LL128>(cluster, bytes),
        run<AllReduce, Ring, LL128>(cluster, bytes, little));
}

TEST_CASE("simulate: the longest message takes a moment") {
  const Cluster cluster = machines(1);
  Options little;
  little.budget = 20000;
  const Index long_one = Index{1} << 40, longest = Index{1} << 60;
  const auto check = [&](const sim::Report& one, const sim::Report& most) {
    CHECK(most.us / one.us == Approx(double(longest / long_one)).epsilon(0.01));
    CHECK(most.sent_bytes / one.sent_bytes == Approx(double(longest / long_one)).epsilon(1e-6));
  };
  check(run<AllReduce, Ring, LL>(cluster, long_one, little),
        run<AllReduce, Ring, LL>(cluster, longest, little));
  check(run<AllReduce, Tree, Simple>(cluster, long_one, little),
        run<AllReduce, Tree, Simple>(cluster, longest, little));
}

TEST_CASE("simulate: GPUs of a node go by their NICs where a communicator takes them") {
  // Two sockets with a GPU and a NIC of 400 Gbit/s at a switch each: RDMA is faster than the link
  // between the sockets.
  std::string text = "<system>";
  for (int n = 0; n < 2; ++n) {
    text += fmt::format(R"(<cpu numaid="{0}" arch="x86_64" vendor="GenuineIntel">
      <pci busid="a{0}:00.0" link_speed="32 GT/s" link_width="16">
      <pci busid="b{0}:00.0" link_speed="32 GT/s" link_width="16"><nic>
      <net name="n{0}" dev="{0}" speed="400000" guid="0x{0}" gdr="1"/></nic></pci>
      <pci busid="c{0}:00.0" link_speed="32 GT/s" link_width="16">
      <gpu dev="{0}" rank="{0}" sm="90" gdr="1"/></pci></pci></cpu>)",
                        n);
  }
  const topo::Graph graph = graph_of(text + "</system>");
  const auto cluster = Cluster::of(graph, 2);
  if (!cluster) FAIL(cluster.error().what);
  REQUIRE(topo::net_beats_p2p(graph, topo::compute_paths(graph), graph.gpu_of_rank(0),
                              graph.gpu_of_rank(1)));
  Options options = one_channel(1 << 16);
  options.every_node = true;
  const auto report = run<SendRecv, Pairwise, Simple>(*cluster, 1 << 20, options);
  REQUIRE(report.nics.size() == 4);
  for (const sim::NicLoad& nic : report.nics) {
    CHECK(nic.sent == Approx(1 << 20));
    CHECK(nic.received == Approx(1 << 20));
  }
}

TEST_CASE("simulate: trees keep up where rings are long") {
  double before = 0;
  for (const int nodes : {2, 16, 128}) {
    const Cluster cluster = machines(nodes);
    const auto ring = run<AllReduce, Ring, LL128>(cluster, 64 << 10);
    const auto tree = run<AllReduce, Tree, LL128>(cluster, 64 << 10);
    CHECK(tree.us < ring.us);
    CHECK(ring.us / tree.us > before);
    before = ring.us / tree.us;
  }
}

TEST_CASE("simulate: the default plan's rings keep up with the NICs") {
  const Cluster cluster = machines(2);
  const Index bytes = Index{1} << 30;
  const auto ring = run<AllReduce, Ring, Simple>(cluster, bytes);
  const int rings = cluster.whole().ring_count();
  REQUIRE(rings == 8);
  CHECK(ring.plans[0].channels == 4 * rings);
  // With a channel each, blocks move half of what the NICs do: 11.8 ms.
  const double volume = 2.0 * (cluster.ranks() - 1) / cluster.ranks() * double(bytes);
  CHECK(ring.us < 1.3 * volume / (cluster.whole().between_gbs() * 1e3));
}

TEST_CASE("simulate: every composition by name, and what it says") {
  const Cluster cluster = machines(2);
  const auto all = sim::compositions({});
  REQUIRE(all);
  CHECK(all->size() >= 24);  // five operations of a ring, three of a tree, three protocols
  for (const auto& what : *all) {
    INFO(what.op << " " << what.algo << " " << what.proto);
    Options options;
    options.root = 5;
    const auto report = simulate(cluster, what, 1 << 20, options);
    REQUIRE(report);
    CHECK(report->us > 0);
    CHECK(report->name == what.op + "/" + what.algo + "/" + what.proto);
    const auto json = nlohmann::json::parse(report->json());
    CHECK(json["us"] == report->us);
    CHECK(json["links"].size() == report->links.size());
    CHECK(report->text().find("hottest link") != std::string::npos);
  }
}

TEST_CASE("simulate: algorithms with checks or times cost what the plain ones do") {
  const Cluster cluster = machines(1);
  const auto plain = run<AllReduce, Ring, LL>(cluster, 1 << 20);
  CHECK(run<AllReduce, Traced<Ring>, LL>(cluster, 1 << 20).us == plain.us);
  CHECK(run<AllReduce, Checked<Ring>, LL>(cluster, 1 << 20).us == plain.us);
  CHECK(plain.steps > 0);
}

TEST_CASE("simulate: what cannot be simulated is a typed error") {
  const Cluster cluster = machines(2);
  const auto code = [](const auto& result) { return result ? Errc::ok : result.error().code; };
  CHECK(code(sim::compositions({"all_reduce", "Rung", ""})) == Errc::invalid_argument);
  CHECK(sim::compositions({"all-Reduce", "hierarchical_ring_tree", "ll_128"}).value().size() == 1);
  CHECK(code(sim::compositions({"sum", "", ""})) == Errc::invalid_argument);
  CHECK(code(sim::compositions({"all_gather", "Tree", ""})) == Errc::not_supported);
  CHECK(code(simulate(cluster, {"all_reduce", "", ""}, 1024)) == Errc::invalid_argument);
  CHECK(code(simulate<AllReduce, Ring, Simple>(cluster, 0)) == Errc::invalid_argument);
  Options options;
  options.root = 16;
  CHECK(code(simulate<Broadcast, Ring, Simple>(cluster, 1024, options)) == Errc::invalid_argument);
  options = one_channel(100);
  CHECK(code(simulate<AllReduce, Ring, Simple>(cluster, 1024, options)) == Errc::invalid_argument);
  for (const int distance : {0, -1, 16}) {
    options = {};
    options.distance = distance;
    CHECK(code(simulate<SendRecv, Pairwise, Simple>(cluster, 1024, options)) ==
          Errc::invalid_argument);
  }
  options = {};
  options.net_us = -1;
  CHECK(code(simulate<AllReduce, Ring, Simple>(cluster, 1024, options)) == Errc::invalid_argument);
  topo::Graph lonely;
  CHECK(code(Cluster::of(lonely, 2)) == Errc::invalid_argument);
  // Plans that no communicator takes: slices of 3 steps, and chunks that fill all slots.
  for (const auto& [slots, slice, chunk] : {std::array{8, 3, 3}, std::array{8, 1, 8}}) {
    options = one_channel(4096);
    options.plan->slot_count = slots;
    options.plan->slice_steps = slice;
    options.plan->chunk_steps = chunk;
    const auto refused = simulate<AllReduce, Ring, Simple>(cluster, 1 << 20, options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().what.find(slice == 3 ? "(steps of a slice are a power of two)"
                                               : "(the slots hold at least two chunks)") !=
          std::string::npos);
  }
  // Slices of 32 GiB, of 2^63 bytes and of 2^64.
  const std::pair<Index, int> slices[] = {{0, 65536}, {Index{1} << 58, 32}, {Index{1} << 59, 32}};
  for (const auto& [slot_bytes, steps] : slices) {
    options = one_channel(slot_bytes);
    options.plan->slot_count = 2 * steps;
    options.plan->slice_steps = options.plan->chunk_steps = steps;
    CHECK(code(simulate<AllReduce, Ring, Simple>(cluster, 1 << 20, options)) ==
          Errc::invalid_argument);
  }
  // A ring over one slot: who receives and sends in one step needs a second one.
  options = one_channel(128);
  options.plan->slot_count = 2;
  CHECK(code(simulate<AllReduce, Ring, Simple>(cluster, 1 << 16, options)) == Errc::ok);
}
