#pragma once

#include <ccl/topo/path.hpp>
#include <ccl/topo/xml.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"

namespace ccl::test {

/// Machine that a text describes, or why it does not.
inline Result<topo::LoadedGraph> load(std::string_view text) {
  auto file = topo::parse_xml(text, "test.xml");
  if (!file) return fail(file.error());
  return topo::to_graph(*file);
}

/// Moves the GPUs and NICs of a machine below one CPU, without figures of links: what a VM shows.
inline void flatten(const topo::Element& from, topo::Element& cpu) {
  for (const topo::Element& child : from.children) {
    if (child.name != "pci") continue;
    const bool device =
        std::any_of(child.children.begin(), child.children.end(),
                    [](const topo::Element& e) { return e.name == "gpu" || e.name == "nic"; });
    if (!device) {
      flatten(child, cpu);
      continue;
    }
    cpu.children.push_back(child);
    cpu.children.back().set("link_speed", "");
    cpu.children.back().set("link_width", "0");
  }
}

/// A machine with what NCCL's own code answers for it.
struct Golden {
  std::string name;
  topo::Graph graph;
  topo::PathRules rules;
  nlohmann::json answers;
};

inline std::vector<Golden> golden_machines(const std::filesystem::path& root) {
  std::vector<Golden> all;
  for (const auto& entry : std::filesystem::directory_iterator(root / "golden")) {
    if (entry.path().extension() != ".json") continue;
    Golden golden;
    golden.name = entry.path().stem().string();
    golden.answers = nlohmann::json::parse(std::ifstream(entry.path()));
    std::filesystem::path xml = entry.path();
    xml.replace_extension(".xml");
    if (!std::filesystem::exists(xml)) {
      xml = root / golden.answers["head"]["xmlUsed"].get<std::string>();
    }
    const bool two = golden.name == "h200x8-2gpu";
    if (two) xml = root / "h200x8/topo.xml";
    auto loaded = topo::load_graph(xml.string());
    if (!loaded) FAIL(loaded.error().what);
    golden.graph = std::move(loaded->graph);
    if (two) {
      std::vector<char> keep(golden.graph.nodes.size(), 1);
      for (const int gpu : golden.graph.of(topo::NodeType::gpu)) {
        keep[gpu] = golden.graph.nodes[gpu].gpu.rank < 2 ? 1 : 0;
      }
      golden.graph = topo::select(golden.graph, keep);
    }
    golden.rules.p2p_disabled = golden.name.find("nop2p") != std::string::npos;
    all.push_back(std::move(golden));
  }
  std::sort(all.begin(), all.end(),
            [](const Golden& a, const Golden& b) { return a.name < b.name; });
  return all;
}

}  // namespace ccl::test
