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
  const auto [number, size] = ccl::detail::leading_number(*text);  // accepts 0x1, too
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

/// Reads the channel graphs of a file for one machine.
class Reader {
 public:
  Reader(const XmlFile& file, const Graph& machine) : file_{file}, machine_{machine} {
    for (const int gpu : machine.of(NodeType::gpu)) {
      const Node::Gpu& about = machine.nodes[gpu].gpu;
      if (about.rank < 0) continue;
      rank_of_dev_[about.dev] = about.rank;
      ranks_.insert(about.rank);
    }
  }

  Result<std::vector<ChannelGraph>> graphs() const {
    if (file_.root.name != "graphs") {
      return fail(
          Errc::invalid_argument,
          fmt::format("{}:{}: root element is <{}> (channels are in <graphs>); check the file",
                      file_.name, file_.root.line, file_.root.name));
    }
    CCL_TRY(const float version, number(file_, file_.root, "version", 1));
    if (version != 1) return refuse(file_, file_.root, "version", "1 is known");
    std::vector<ChannelGraph> graphs;
    for (const Element& element : file_.root.children) {
      if (element.name != "graph") continue;
      CCL_TRY(auto graph, this->graph(element));
      graphs.push_back(std::move(graph));
    }
    return graphs;
  }

 private:
  Result<ChannelGraph> graph(const Element& element) const {
    ChannelGraph graph;
    CCL_CHECK(read_attributes(element, graph));
    for (const Element& below : element.children) {
      if (below.name != "channel") continue;
      CCL_TRY(auto order, channel(below));
      graph.channels.push_back(std::move(order));
    }
    CCL_TRY(const float count, number(file_, element, "nchannels", 0));
    if (static_cast<int>(count) != graph.count()) {
      return refuse(file_, element, "nchannels",
                    fmt::format("there are {} channels", graph.count()));
    }
    return graph;
  }

  Result<void> read_attributes(const Element& element, ChannelGraph& graph) const {
    CCL_TRY(const float id, number(file_, element, "id", 0));
    CCL_TRY(const float pattern, number(file_, element, "pattern", 4));
    CCL_TRY(const float cross, number(file_, element, "crossnic", 0));
    CCL_TRY(const float same, number(file_, element, "samechannels", 1));
    CCL_TRY(graph.bw_intra, number(file_, element, "speedintra", 0));
    CCL_TRY(graph.bw_inter, number(file_, element, "speedinter", 0));
    CCL_TRY(graph.latency_inter, number(file_, element, "latencyinter", 0));
    CCL_TRY(graph.type_intra, path_type(file_, element, "typeintra"));
    CCL_TRY(graph.type_inter, path_type(file_, element, "typeinter"));
    if (pattern < 1 || pattern > 6) return refuse(file_, element, "pattern", "1 to 6 are known");
    graph.id = static_cast<int>(id);
    graph.pattern = static_cast<Pattern>(static_cast<int>(pattern));
    if ((graph.id == 0 && graph.pattern != Pattern::ring) ||
        (graph.id == 1 && graph.pattern > Pattern::tree)) {
      return refuse(file_, element, "pattern",
                    graph.id == 0 ? "graph 0 is the ring, 4" : "graph 1 is the tree, 1 to 3");
    }
    graph.cross_nic = static_cast<int>(cross);
    graph.same_channels = same != 0;
    return {};
  }

  Result<ChannelOrder> channel(const Element& element) const {
    ChannelOrder order;
    std::set<int> missing = ranks_;
    for (const Element& place : element.children) {
      CCL_TRY(const float dev, number(file_, place, "dev", -1));
      if (place.name == "net") {
        (order.ranks.empty() ? order.net_in : order.net_out) = static_cast<int>(dev);
        continue;
      }
      if (place.name != "gpu") continue;
      CCL_TRY(const int rank, rank_of(place, static_cast<int>(dev)));
      for (const int other : order.ranks) {
        if (other == rank) return refuse(file_, place, "dev", "twice in one channel");
      }
      order.ranks.push_back(rank);
    }
    for (const int rank : order.ranks) missing.erase(rank);
    if (!missing.empty()) {
      return fail(Errc::invalid_argument,
                  fmt::format("{}:{}: this <channel> is without rank {} (each holds all {} GPUs "
                              "of the machine); add it or search anew",
                              file_.name, element.line, *missing.begin(), ranks_.size()));
    }
    return order;
  }

  // NCCL 2.30 writes the rank, too, since one device may carry several.
  Result<int> rank_of(const Element& place, int dev) const {
    CCL_TRY(const float rank, number(file_, place, "rank", -1));
    if (rank < 0) {
      const auto found = rank_of_dev_.find(dev);
      if (found == rank_of_dev_.end()) {
        return refuse(file_, place, "dev", "the machine has no such GPU");
      }
      return found->second;
    }
    if (machine_.gpu_of_rank(static_cast<int>(rank)) < 0) {
      return refuse(file_, place, "rank", "the machine has no such rank");
    }
    return static_cast<int>(rank);
  }

  const XmlFile& file_;
  const Graph& machine_;
  std::map<int, int> rank_of_dev_;
  std::set<int> ranks_;
};

}  // namespace

Result<std::vector<ChannelGraph>> to_channel_graphs(const XmlFile& file, const Graph& machine) {
  return Reader{file, machine}.graphs();
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
