#include <ccl/topo/channel_graph.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

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
                          value == nullptr ? "" : ccl::detail::shortened(*value, 80), why));
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

/// Number of a device. NCCL writes the number of the host in an NVLink domain into the top 8 bits.
struct DeviceId {
  int host = 0;
  int number = -1;  // -1: not given
};

Result<DeviceId> device_id(const XmlFile& file, const Element& element) {
  constexpr std::uint64_t host_bit = 56, most = std::uint64_t{1} << 24;
  const std::string* text = element.find("dev");
  if (text == nullptr) return DeviceId{};
  const bool hex = text->size() > 2 && (*text)[0] == '0' && ccl::detail::lower((*text)[1]) == 'x';
  std::uint64_t id = 0;
  const char* const last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data() + (hex ? 2 : 0), last, id, hex ? 16 : 10);
  const std::uint64_t number = id & ((std::uint64_t{1} << host_bit) - 1);
  if (error != std::errc{} || end != last || number > most) {
    return refuse(file, element, "dev", "not the number of a device");
  }
  return DeviceId{static_cast<int>(id >> host_bit), static_cast<int>(number)};
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
  Reader(const XmlFile& file, const Graph& machine) : file_{file} {
    for (const int gpu : machine.of(NodeType::gpu)) {
      const Node& node = machine.nodes[gpu];
      if (node.gpu.rank < 0) continue;
      of_number_[node.gpu.dev].push_back({node.host, node.gpu.rank});
      ranks_.insert(node.gpu.rank);
    }
    for (const int net : machine.of(NodeType::net)) nets_.insert(machine.nodes[net].net.dev);
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
      CCL_TRY(auto order, channel(below, graph.id));
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
    const std::pair<const char*, float> speeds[] = {{"speedintra", graph.bw_intra},
                                                    {"speedinter", graph.bw_inter},
                                                    {"latencyinter", graph.latency_inter}};
    for (const auto& [attribute, value] : speeds) {
      if (value < 0) return refuse(file_, element, attribute, "below 0");
    }
    if (cross < 0 || cross > 2) return refuse(file_, element, "crossnic", "0 to 2 are known");
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

  Result<ChannelOrder> channel(const Element& element, int graph) const {
    ChannelOrder order;
    std::set<int> missing = ranks_;
    for (const Element& place : element.children) {
      CCL_TRY(const DeviceId device, device_id(file_, place));
      if (place.name == "net") {
        CCL_CHECK(check_net(place, device.number));
        (order.ranks.empty() ? order.net_in : order.net_out) = device.number;
        continue;
      }
      if (place.name != "gpu") continue;
      CCL_TRY(const int rank, rank_of(place, device));
      if (missing.erase(rank) == 0) return refuse(file_, place, "dev", "twice in one channel");
      order.ranks.push_back(rank);
    }
    // NCCL writes only the head of a channel of NVLS, to which all others are alike.
    if (graph == nvls_id && order.ranks.size() == 1) {
      order.ranks.insert(order.ranks.end(), missing.begin(), missing.end());
      missing.clear();
    }
    if (!missing.empty()) {
      return fail(Errc::invalid_argument,
                  fmt::format("{}:{}: this <channel> is without rank {} (each holds all {} GPUs "
                              "of the machine); add it or search anew",
                              file_.name, element.line, *missing.begin(), ranks_.size()));
    }
    return order;
  }

  /// A machine without NICs, as one whose ranks are alone, takes the file of one with.
  Result<void> check_net(const Element& place, int number) const {
    if (nets_.empty() || nets_.contains(number)) return {};
    return refuse(file_, place, "dev",
                  fmt::format("the machine has no such NIC, but {}", fmt::join(nets_, ", ")));
  }

  /// Place of a GPU, by the number of its device. `rank` counts only if that names no GPU or
  /// several: ccl writes the place there, but NCCL 2.30 the rank in its communicator.
  Result<int> rank_of(const Element& place, const DeviceId& device) const {
    CCL_TRY(const float given, number(file_, place, "rank", -1));
    const int rank = static_cast<int>(given);
    const auto found = of_number_.find(device.number);
    if (found == of_number_.end()) {
      if (rank < 0) return refuse(file_, place, "dev", "the machine has no such GPU");
      if (ranks_.contains(rank)) return rank;
      return refuse(file_, place, "rank",
                    "the machine has no such rank, and no GPU with the number in dev");
    }
    const std::vector<Gpu>& gpus = found->second;
    if (gpus.size() == 1) return gpus.front().rank;
    const auto of_host = std::find_if(gpus.begin(), gpus.end(),
                                      [&](const Gpu& gpu) { return gpu.host == device.host; });
    if (device.host > 0 && of_host != gpus.end()) return of_host->rank;
    for (const Gpu& gpu : gpus) {
      if (gpu.rank == rank) return rank;
    }
    if (of_host != gpus.end()) return of_host->rank;
    return refuse(file_, place, "dev", fmt::format("{} GPUs have this number", gpus.size()));
  }

  struct Gpu {
    int host = 0, rank = -1;
  };
  static constexpr int nvls_id = 3;

  const XmlFile& file_;
  std::map<int, std::vector<Gpu>> of_number_;
  std::set<int> ranks_, nets_;
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
