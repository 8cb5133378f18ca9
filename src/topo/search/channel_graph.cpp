#include <ccl/topo/channel_graph.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "base/text.hpp"

namespace ccl::topo {

std::string_view name(Pattern pattern) {
  switch (pattern) {
    case Pattern::balanced_tree:
      return "balanced tree";
    case Pattern::split_tree:
      return "split tree";
    case Pattern::tree:
      return "tree";
    case Pattern::ring:
      return "ring";
    case Pattern::nvls:
      return "nvls";
    case Pattern::collnet_direct:
      return "collnet direct";
  }
  return "?";
}

Element to_xml(const std::vector<ChannelGraph>& graphs, const Graph& machine) {
  std::map<int, int> dev_of_rank;
  for (const int gpu : machine.of(NodeType::gpu)) {
    dev_of_rank[machine.nodes[gpu].gpu.rank] = machine.nodes[gpu].gpu.dev;
  }
  Element root;
  root.name = "graphs";
  root.set("version", "1");
  for (const ChannelGraph& graph : graphs) {
    Element out;
    out.name = "graph";
    out.set("id", std::to_string(graph.id));
    out.set("pattern", std::to_string(static_cast<int>(graph.pattern)));
    out.set("crossnic", std::to_string(graph.cross_nic));
    out.set("nchannels", std::to_string(graph.count()));
    out.set("speedintra", fmt::format("{:g}", graph.bw_intra));
    out.set("speedinter", fmt::format("{:g}", graph.bw_inter));
    out.set("latencyinter", fmt::format("{:g}", graph.latency_inter));
    out.set("typeintra", std::string(name(graph.type_intra)));
    out.set("typeinter", std::string(name(graph.type_inter)));
    out.set("samechannels", graph.same_channels ? "1" : "0");
    for (const ChannelOrder& order : graph.channels) {
      Element channel;
      channel.name = "channel";
      const auto add = [&channel](const char* what, int dev) {
        Element element;
        element.name = what;
        element.set("dev", dev < 10 ? std::to_string(dev) : fmt::format("{:#x}", dev));
        channel.children.push_back(std::move(element));
      };
      if (order.net_in >= 0) add("net", order.net_in);
      for (const int rank : order.ranks) {
        const auto dev = dev_of_rank.find(rank);
        add("gpu", dev == dev_of_rank.end() ? rank : dev->second);
        channel.children.back().set("rank", std::to_string(rank));
      }
      if (order.net_out >= 0) add("net", order.net_out);
      out.children.push_back(std::move(channel));
    }
    root.children.push_back(std::move(out));
  }
  return root;
}

namespace {

auto refuse(const XmlFile& file, const Element& element, std::string_view attribute,
            std::string_view why) {
  const std::string* value = element.find(attribute);
  return fail(Errc::invalid_argument,
              fmt::format("{}:{}: <{}> {}=\"{}\" is refused ({}); correct it or search anew",
                          file.name, element.line, element.name, attribute,
                          value == nullptr ? "" : value->substr(0, 80), why));
}

Result<float> number(const XmlFile& file, const Element& element, std::string_view attribute,
                     float fallback) {
  const std::string* text = element.find(attribute);
  if (text == nullptr) return fallback;
  const auto [number, size] = ccl::detail::leading_number(*text);  // takes 0x1 as well
  const auto value = static_cast<float>(number);
  if (size == 0 || !std::isfinite(value) || std::abs(value) > 1e7F) {
    return refuse(file, element, attribute, "not a number");
  }
  return value;
}

Result<PathType> path_type(const XmlFile& file, const Element& element,
                           std::string_view attribute) {
  const std::string* text = element.find(attribute);
  PathType type = PathType::loc;
  if (text != nullptr && !parse(*text, type)) {
    return refuse(file, element, attribute, "no path type");
  }
  return type;
}

}  // namespace

Result<std::vector<ChannelGraph>> to_channel_graphs(const XmlFile& file, const Graph& machine) {
  if (file.root.name != "graphs") {
    return fail(
        Errc::invalid_argument,
        fmt::format("{}:{}: root element is <{}> (channels are in <graphs>); check the file",
                    file.name, file.root.line, file.root.name));
  }
  CCL_TRY(const float version, number(file, file.root, "version", 1));
  if (version != 1) return refuse(file, file.root, "version", "1 is known");
  std::map<int, int> rank_of_dev;
  for (const int gpu : machine.of(NodeType::gpu)) {
    if (machine.nodes[gpu].gpu.rank < 0) continue;
    rank_of_dev[machine.nodes[gpu].gpu.dev] = machine.nodes[gpu].gpu.rank;
  }
  std::set<int> everyone;
  for (const int gpu : machine.of(NodeType::gpu)) everyone.insert(machine.nodes[gpu].gpu.rank);
  everyone.erase(-1);
  std::vector<ChannelGraph> graphs;
  for (const Element& element : file.root.children) {
    if (element.name != "graph") continue;
    ChannelGraph graph;
    CCL_TRY(const float id, number(file, element, "id", 0));
    CCL_TRY(const float pattern, number(file, element, "pattern", 4));
    CCL_TRY(const float cross, number(file, element, "crossnic", 0));
    CCL_TRY(const float same, number(file, element, "samechannels", 1));
    CCL_TRY(graph.bw_intra, number(file, element, "speedintra", 0));
    CCL_TRY(graph.bw_inter, number(file, element, "speedinter", 0));
    CCL_TRY(graph.latency_inter, number(file, element, "latencyinter", 0));
    CCL_TRY(graph.type_intra, path_type(file, element, "typeintra"));
    CCL_TRY(graph.type_inter, path_type(file, element, "typeinter"));
    if (pattern < 1 || pattern > 6) return refuse(file, element, "pattern", "1 to 6 are known");
    graph.id = static_cast<int>(id);
    graph.pattern = static_cast<Pattern>(static_cast<int>(pattern));
    if ((graph.id == 0 && graph.pattern != Pattern::ring) ||
        (graph.id == 1 && graph.pattern > Pattern::tree)) {
      return refuse(file, element, "pattern",
                    graph.id == 0 ? "graph 0 is the ring, 4" : "graph 1 is the tree, 1 to 3");
    }
    graph.cross_nic = static_cast<int>(cross);
    graph.same_channels = same != 0;
    for (const Element& below : element.children) {
      if (below.name != "channel") continue;
      ChannelOrder order;
      std::set<int> missing = everyone;
      for (const Element& place : below.children) {
        CCL_TRY(const float dev, number(file, place, "dev", -1));
        if (place.name == "net") {
          (order.ranks.empty() ? order.net_in : order.net_out) = static_cast<int>(dev);
          continue;
        }
        if (place.name != "gpu") continue;
        // NCCL 2.30 writes the rank too, since one device may carry several.
        CCL_TRY(float rank, number(file, place, "rank", -1));
        if (rank < 0) {
          const auto found = rank_of_dev.find(static_cast<int>(dev));
          if (found == rank_of_dev.end()) {
            return refuse(file, place, "dev", "the machine has no such GPU");
          }
          rank = static_cast<float>(found->second);
        } else if (machine.gpu_of_rank(static_cast<int>(rank)) < 0) {
          return refuse(file, place, "rank", "the machine has no such rank");
        }
        for (const int other : order.ranks) {
          if (other == static_cast<int>(rank)) {
            return refuse(file, place, "dev", "twice in one channel");
          }
        }
        order.ranks.push_back(static_cast<int>(rank));
      }
      for (const int there : order.ranks) missing.erase(there);
      if (!missing.empty()) {
        return fail(Errc::invalid_argument,
                    fmt::format("{}:{}: this <channel> is without rank {} (each holds all {} GPUs "
                                "of the machine); add it or search anew",
                                file.name, below.line, *missing.begin(), everyone.size()));
      }
      graph.channels.push_back(std::move(order));
    }
    CCL_TRY(const float count, number(file, element, "nchannels", 0));
    if (static_cast<int>(count) != graph.count()) {
      return refuse(file, element, "nchannels",
                    fmt::format("there are {} channels", graph.count()));
    }
    graphs.push_back(std::move(graph));
  }
  return graphs;
}

std::string print(const ChannelGraph& graph) {
  std::string text = fmt::format(
      "{}: {} channels x {:g} GB/s inside ({}), {:g} GB/s between machines ({}), {} channels, "
      "cross NIC {}\n",
      name(graph.pattern), graph.count(), graph.bw_intra, name(graph.type_intra), graph.bw_inter,
      name(graph.type_inter), graph.same_channels ? "same" : "different", graph.cross_nic);
  for (int c = 0; c < graph.count(); ++c) {
    int last = c;
    while (last + 1 < graph.count() && graph.channels[last + 1] == graph.channels[c]) ++last;
    const ChannelOrder& order = graph.channels[c];
    text += last == c ? fmt::format("  {:>5} :", c) : fmt::format("  {:>2}-{:<2} :", c, last);
    if (order.net_in >= 0) text += fmt::format(" NET{}", order.net_in);
    text += fmt::format(" {}", fmt::join(order.ranks, " "));
    if (order.net_out >= 0) text += fmt::format(" NET{}", order.net_out);
    text += "\n";
    c = last;
  }
  return text;
}

}  // namespace ccl::topo
