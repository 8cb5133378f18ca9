// Machines of tests/topo/machines, which have the shapes of real ones, beside what NCCL's own code
// answers for such machines: <name>.json has answers of NCCL 2.30.7 (src/graph, run on a CPU).
#include "support/machines.hpp"

#include <ccl/topo/connect.hpp>
#include <ccl/topo/path.hpp>
#include <ccl/topo/search.hpp>
#include <ccl/topo/xml.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/room/shapes.hpp"

namespace topo = ccl::topo;
using topo::NodeType;
using topo::PathType;

namespace {

const std::filesystem::path folder = std::filesystem::path{CCL_SOURCE_DIR} / "tests/topo/machines";
const std::string without_p2p = "+nop2p";

struct Machine {
  std::string name;
  topo::Graph graph;
  topo::Paths paths;
  nlohmann::json answers;  // of NCCL
  int gpus() const { return static_cast<int>(graph.of(NodeType::gpu).size()); }
};

std::vector<Machine> machines() {
  std::vector<Machine> all;
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.insert(entry.path());
  }
  for (const auto& path : files) {
    Machine machine;
    machine.name = path.stem().string();
    machine.answers = nlohmann::json::parse(std::ifstream(path));
    topo::PathRules rules;
    rules.p2p_disabled = machine.name.ends_with(without_p2p);
    const std::string shape = machine.name.substr(0, machine.name.find('+'));
    auto loaded = topo::load_graph((folder / (shape + ".xml")).string());
    if (!loaded) FAIL(loaded.error().what);
    machine.graph = std::move(loaded->graph);
    machine.paths = topo::compute_paths(machine.graph, rules);
    all.push_back(std::move(machine));
  }
  return all;
}

/// Node that a letter and a number name: g3 is the GPU of rank 3, n0 the NIC 0.
int node_of(const topo::Graph& graph, char kind, int number) {
  for (const int n : graph.of(kind == 'g' ? NodeType::gpu : NodeType::net)) {
    const topo::Node& node = graph.nodes[n];
    if ((kind == 'g' ? node.gpu.rank : node.net.dev) == number) return n;
  }
  FAIL("no " << kind << number);
  return -1;
}

/// A graph of channels as a line: channels x GB/s inside a host / between hosts, types of both.
std::string text(int channels, float intra, float inter, std::string_view type_intra,
                 std::string_view type_inter) {
  if (channels == 0) return "none";
  return fmt::format("{} x {:g}/{:g} {}/{}", channels, intra, inter, type_intra, type_inter);
}
std::string text(const topo::ChannelGraph& graph) {
  return text(graph.count(), graph.bw_intra, graph.bw_inter, topo::name(graph.type_intra),
              topo::name(graph.type_inter));
}
std::string text(const nlohmann::json& graph) {
  return text(graph[0], graph[1], graph[2], graph[3].get<std::string>(),
              graph[4].get<std::string>());
}

topo::Graph graph_of(const topo::Element& root) {
  auto loaded = topo::to_graph({"test", root});
  if (!loaded) FAIL(loaded.error().what);
  return std::move(loaded->graph);
}

}  // namespace

TEST_CASE("machines are written as they are read") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".xml") continue;
    INFO(entry.path().string());
    ++count;
    const auto loaded = topo::load_graph(entry.path().string());
    if (!loaded) FAIL(loaded.error().what);
    const std::string written = topo::print_xml(topo::to_xml(loaded->graph));
    const auto again = ccl::test::load(written);
    if (!again) FAIL(again.error().what);
    CHECK(topo::print_xml(topo::to_xml(again->graph)) == written);
    CHECK(again->graph.links.size() == loaded->graph.links.size());
  }
  CHECK(count == 10);
}

TEST_CASE("paths have NCCL's types and bandwidths") {
  int total = 0;
  std::vector<std::string> others;
  for (const Machine& machine : machines()) {
    for (const auto& [answer, pairs] : machine.answers["paths"].items()) {
      std::istringstream in{pairs.get<std::string>()};
      char from = 0, to = 0;
      int from_number = 0, to_number = 0;
      while (in >> from >> from_number >> to >> to_number) {
        ++total;
        const topo::Path& ours = machine.paths.at(node_of(machine.graph, from, from_number),
                                                  node_of(machine.graph, to, to_number));
        const std::string mine = fmt::format("{} {:g}", topo::name(ours.type), ours.bw);
        if (mine == answer) continue;
        others.push_back(fmt::format("{} {}{} {}{}: NCCL {}, ccl {}", machine.name, from,
                                     from_number, to, to_number, answer, mine));
      }
    }
  }
  CHECK(total == 702);
  // Links are directed: NCCL gives each direction the bandwidth of the way back.
  CHECK(others == std::vector<std::string>{"half_bridged g1 g0: NCCL NVL 20, ccl NVL 240",
                                           "half_bridged g0 g1: NCCL NVL 240, ccl NVL 20"});
}

TEST_CASE("channels are NCCL's, or better") {
  std::map<std::string, std::string> others;
  int same = 0;
  for (const Machine& machine : machines()) {
    for (const int hosts : {1, 2}) {
      const topo::ChannelPlan plan =
          topo::search_all(machine.graph, machine.paths, machine.gpus() * hosts);
      CHECK(topo::check(plan.ring, machine.graph, machine.paths) == "");
      const auto& theirs = machine.answers[fmt::format("n{}", hosts)]["graphs"];
      const auto compare = [&](const char* kind, const topo::ChannelGraph& graph) {
        const std::string ours = text(graph), answer = text(theirs[kind]);
        if (ours == answer) {
          ++same;
          return;
        }
        const float channels = theirs[kind][0], ours_of = static_cast<float>(graph.count());
        others[fmt::format("{} n{} {}", machine.name, hosts, kind)] = answer + " -> " + ours;
        CHECK(ours_of * graph.bw_intra >= channels * theirs[kind][1].get<float>() - 0.01F);
        CHECK(ours_of * graph.bw_inter >= channels * theirs[kind][2].get<float>() - 0.01F);
      };
      compare("ring", plan.ring);
      compare("tree", plan.tree);
      compare("collnetChain", plan.collnet_chain);
      compare("collnetDirect", plan.collnet_direct);
      compare("nvls", plan.nvls);
    }
  }
  CHECK(same == 99);
  // docs/validation/topology.md has the reasons.
  CHECK(others ==
        std::map<std::string, std::string>{
            {"ndv4 n1 collnetDirect", "8 x 20/20 NVL/PIX -> 8 x 40/40 NVL/PIX"},
            {"p4d n1 collnetDirect", "8 x 20/20 NVL/PIX -> 8 x 40/40 NVL/PIX"},
            {"pcie_amd n1 collnetDirect", "2 x 12/12 PHB/PIX -> 2 x 12/12 SYS/PIX"},
            {"pcie_intel n1 collnetDirect", "1 x 15/15 PIX/PIX -> 1 x 15/15 SYS/PIX"},
            {"pcie_intel+nop2p n1 collnetDirect", "1 x 15/15 PHB/PIX -> 1 x 15/15 SYS/PIX"},
            {"two_pairs n1 collnetChain", "2 x 6/6 SYS/PIX -> 2 x 12/12 SYS/PIX"},
            {"two_pairs n1 collnetDirect", "4 x 9/9 NVL/PIX -> 2 x 18/18 SYS/PIX"},
            {"two_pairs n1 ring", "2 x 6/6 SYS/PIX -> 2 x 12/12 SYS/PIX"},
            {"two_pairs n1 tree", "2 x 6/6 SYS/PIX -> 2 x 12/12 SYS/PIX"},
            {"two_pairs n2 tree", "2 x 4/4 SYS/SYS -> 2 x 6/6 SYS/SYS"},
            {"v100_mesh n1 collnetDirect", "8 x 20/20 NVL/PIX -> 8 x 20/20 NVB/PIX"}});
}

TEST_CASE("joined rings and trees are NCCL's, or a tie") {
  std::set<std::string> others;
  for (const Machine& machine : machines()) {
    for (const int hosts : {1, 2}) {
      const int ranks = machine.gpus() * hosts;
      const topo::ChannelPlan plan = topo::search_all(machine.graph, machine.paths, ranks);
      topo::JoinOptions options;
      options.cross_nic = plan.ring.cross_nic;
      options.extra_copies = topo::copies(plan.ring, hosts, machine.graph.min_sm());
      const auto joined = topo::join(topo::replicate(plan.ring, plan.tree, hosts), ranks, options);
      REQUIRE(joined);
      CHECK(topo::check(*joined, ranks) == "");
      const auto& theirs = machine.answers[fmt::format("n{}", hosts)];
      // Each ring is there twice, and the file has it once.
      auto rings = theirs["rings"].get<std::vector<std::vector<int>>>();
      const std::vector<std::vector<int>> once = rings;
      rings.insert(rings.end(), once.begin(), once.end());
      if (rings != joined->rings) others.insert(fmt::format("{} n{} rings", machine.name, hosts));
      std::vector<std::vector<int>> ups;
      for (const auto& tree : joined->trees) {
        ups.emplace_back();
        for (const auto& links : tree) ups.back().push_back(links.up);
      }
      if (theirs["trees"].get<std::vector<std::vector<int>>>() != ups) {
        others.insert(fmt::format("{} n{} trees", machine.name, hosts));
      }
    }
  }
  // Ties, and the better channels of two pairs: docs/validation/topology.md has each.
  CHECK(others == std::set<std::string>{"p4d n2 rings", "p4d n2 trees", "pcie_amd n2 rings",
                                        "pcie_intel n2 rings", "pcie_intel+nop2p n2 rings",
                                        "pcie_intel+nop2p n2 trees", "two_pairs n1 rings",
                                        "two_pairs n1 trees", "two_pairs n2 trees"});
}

TEST_CASE("all machines and all shapes of rooms search and connect for 1 to 64 hosts") {
  std::vector<std::pair<std::string, topo::Graph>> all;
  for (Machine& machine : machines()) all.emplace_back(machine.name, std::move(machine.graph));
  namespace room = ccl::test::room;
  for (const room::Shape& shape : {room::dgx(), room::ndv4(), room::p4d(), room::p5(),
                                   room::two_nics(), room::one_sided(), room::pcie()}) {
    const auto file = topo::parse_xml(
        room::topology(shape, 0, shape.gpus,
                       [](int gpu) { return fmt::format("0000:{:02x}:00.0", 0x10 + gpu); }),
        shape.name);
    REQUIRE(file);
    all.emplace_back(shape.name, graph_of(file->root));
  }
  for (const auto& [name, graph] : all) {
    const topo::Paths paths = topo::compute_paths(graph);
    const int each = static_cast<int>(graph.of(NodeType::gpu).size());
    for (const int count : {1, 2, 4, 8, 16, 64}) {
      INFO(name << " x " << count);
      const topo::ChannelPlan plan = topo::search_all(graph, paths, each * count);
      CHECK(plan.ring.count() > 0);
      CHECK(topo::check(plan.ring, graph, paths) == "");
      CHECK(topo::check(plan.tree, graph, paths) == "");
      topo::JoinOptions options;
      options.cross_nic = plan.ring.cross_nic;
      topo::ChannelGraph ring = plan.ring, tree = plan.tree;
      const std::size_t both = std::min(ring.channels.size(), tree.channels.size());
      ring.channels.resize(both);
      tree.channels.resize(both);
      const auto joined = topo::join(topo::replicate(ring, tree, count), each * count, options);
      REQUIRE(joined);
      CHECK(topo::check(*joined, each * count) == "");
    }
  }
}

namespace {

/// CPUs and PCI functions alone: what a vendor of VMs publishes.
topo::Element hint_of(topo::Element element) {
  std::erase_if(element.children,
                [](const topo::Element& e) { return e.name != "cpu" && e.name != "pci"; });
  for (topo::Element& child : element.children) child = hint_of(child);
  return element;
}

}  // namespace

TEST_CASE("a vendor's hint file restores what a VM flattens") {
  for (const char* name : {"ndv4", "p4d", "pcie_amd", "v100_mesh"}) {
    INFO(name);
    const auto full = topo::read_xml((folder / (std::string{name} + ".xml")).string());
    REQUIRE(full);
    topo::Element flat;
    flat.name = "system";
    topo::Element cpu = full->root.children.front();
    cpu.children.clear();
    cpu.set("numaid", "-1");
    for (const topo::Element& other : full->root.children) ccl::test::flatten(other, cpu);
    flat.children.push_back(cpu);
    const topo::Graph right = graph_of(full->root), bare = graph_of(flat),
                      merged = graph_of(topo::merge(flat, hint_of(full->root)));
    const int ranks = 2 * static_cast<int>(right.of(NodeType::gpu).size());
    const auto ring = [&](const topo::Graph& graph) {
      return text(topo::search_all(graph, topo::compute_paths(graph), ranks).ring);
    };
    CHECK(merged.of(NodeType::gpu).size() == right.of(NodeType::gpu).size());
    CHECK(ring(merged) == ring(right));
    CHECK(ring(bare) != ring(right));
  }
}
