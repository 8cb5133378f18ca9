#include <ccl/topo/draw.hpp>

#include <nlohmann/json.hpp>

namespace ccl::topo {

using nlohmann::json;

namespace {

/// Writes the paths of `from` as members of an array, in lines that are indented as by `dump(1)`.
std::string paths_from(const Graph& graph, const Paths& paths, const std::vector<int>& ends,
                       int from, bool& first) {
  std::string text;
  for (const int to : ends) {
    const Path path = paths.at(from, to);
    if (from == to || !path.reaches()) continue;
    json hops = json::array();
    for (const int l : path.links) hops.push_back(graph.label(graph.links[l].to));
    const std::string entry = json{
        {"from", graph.label(from)},
        {"to", graph.label(to)},
        {"type", name(path.type)},
        {"gbps", path.bw},
        {"hops", hops}}.dump(1);
    text += first ? "\n  " : ",\n  ";
    first = false;
    for (const char c : entry) {
      text += c;
      if (c == '\n') text += "  ";
    }
  }
  return text;
}

}  // namespace

void write_json(const Graph& graph, const Paths* paths, const TextSink& sink) {
  json out;
  out["nodes"] = json::array();
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[n];
    json entry{{"name", graph.label(n)}, {"type", name(node.type)}};
    if (node.type == NodeType::gpu) {
      entry["rank"] = node.gpu.rank;
      entry["dev"] = node.gpu.dev;
      entry["sm"] = node.gpu.sm;
      entry["gdr"] = node.gpu.gdr;
      entry["on_cpu"] = node.gpu.on_cpu;
    } else if (node.type == NodeType::net) {
      entry["net"] = node.net.name;
      entry["dev"] = node.net.dev;
      entry["gbps"] = node.net.bw;
      entry["gdr"] = node.net.gdr;
    } else if (node.type == NodeType::cpu) {
      entry["vendor"] = node.cpu.vendor_name;
      entry["affinity"] = node.cpu.affinity;
    }
    out["nodes"].push_back(std::move(entry));
  }
  out["links"] = json::array();
  for (const Link& link : graph.links) {
    out["links"].push_back({{"from", graph.label(link.from)},
                            {"to", graph.label(link.to)},
                            {"type", name(link.type)},
                            {"gbps", link.bw}});
  }
  std::string text = out.dump(1, ' ', false, json::error_handler_t::replace);
  if (paths != nullptr) {
    text.resize(text.size() - 2);  // the paths are the last member
    sink(text);
    sink(",\n \"paths\": [");
    std::vector<int> ends = graph.of(NodeType::gpu);
    for (const int net : graph.of(NodeType::net)) ends.push_back(net);
    bool first = true;
    for (const int from : ends) sink(paths_from(graph, *paths, ends, from, first));
    text = first ? "]\n}" : "\n ]\n}";
  }
  sink(text + "\n");
}

std::string to_json(const Graph& graph, const Paths* paths) {
  std::string text;
  write_json(graph, paths, [&](std::string_view piece) { text += piece; });
  return text;
}

std::string to_json(const ChannelGraph& channels) {
  json out{{"pattern", name(channels.pattern)},         {"gbps_inside", channels.bw_intra},
           {"gbps_between", channels.bw_inter},         {"type_inside", name(channels.type_intra)},
           {"type_between", name(channels.type_inter)}, {"channels", json::array()}};
  for (const ChannelOrder& order : channels.channels) {
    out["channels"].push_back(
        {{"ranks", order.ranks}, {"net_in", order.net_in}, {"net_out", order.net_out}});
  }
  return out.dump(1) + "\n";
}

std::string to_json(const JoinedChannels& joined) {
  json out{{"rings", joined.rings}, {"trees", json::array()}};
  for (const std::vector<TreeLinks>& tree : joined.trees) {
    json up = json::array(), down = json::array();
    for (const TreeLinks& links : tree) {
      up.push_back(links.up);
      json children = json::array();
      for (const int child : links.down) {
        if (child >= 0) children.push_back(child);
      }
      down.push_back(std::move(children));
    }
    out["trees"].push_back({{"up", up}, {"down", down}});
  }
  return out.dump() + "\n";
}

}  // namespace ccl::topo
