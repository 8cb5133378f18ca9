#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>

#include "topo/xml/loader.hpp"

namespace ccl::topo::detail {

Result<void> Loader::add_nic(const Element& element, int parent, const int* known) {
  Graph& graph = loaded_.graph;
  int nic = -1;
  if (known != nullptr) {
    nic = *known;
  } else {
    Node node;
    node.type = NodeType::nic;
    node.parent = parent;
    node.host = graph.nodes[parent].host;
    node.id = static_cast<std::int64_t>(loose_nics_++);
    nic = graph.add(std::move(node));
    graph.connect(nic, parent, LinkType::pci, gbps::loc);
    graph.connect(parent, nic, LinkType::pci, gbps::loc);
  }
  return add_nets(element, nic);
}

/// Functions of a card share its guid, and each may number its port 1: the port of a second
/// function counts as a further port of the card.
int Loader::port_of_card(const Node& net, std::size_t before) const {
  const auto card = nets_of_.find(net.parent);
  if (net.net.guid == 0 || card == nets_of_.end()) return net.net.port;
  bool taken = false;
  int last = 0;
  for (std::size_t n = 0; n < before; ++n) {
    const Node& one = loaded_.graph.nodes[card->second[n]];
    if (one.net.guid != net.net.guid) continue;
    taken = taken || one.net.port == net.net.port;
    last = std::max(last, one.net.port);
  }
  return taken ? last + 1 : net.net.port;
}

/// Ranks find a NIC by its name and port, so that two of one name and port are one device.
void Loader::check_net_name(const Element& element, const Node& net) {
  if (net.net.name.empty()) return;
  const auto [first, fresh] =
      net_names_.emplace(std::tuple(net.host, net.net.name, net.net.port), element.line);
  if (fresh) return;
  repair(element.line, fmt::format("second <net name=\"{}\"> of port {} (the first is in line {}): "
                                   "kept, but channels may use one device for both",
                                   net.net.name, net.net.port, first->second));
}

Result<void> Loader::add_nets(const Element& element, int nic) {
  Graph& graph = loaded_.graph;
  const std::size_t before = nets_of_[nic].size();
  for (const Element& child : element.children) {
    if (child.name != "net") {
      // GIN and RMA devices are the same hardware under other names; they are kept for readers of
      // the file.
      if (child.name == "gin" || child.name == "rma") {
        graph.nodes[nic].kept.push_back({child.name, child.attributes});
      } else {
        leave_out(child);
      }
      continue;
    }
    leave_out_below(child);
    Node node;
    node.type = NodeType::net;
    node.parent = nic;
    node.host = graph.nodes[nic].host;
    node.net.name = text(child, "name");
    CCL_TRY(node.net.dev, integer(child, "dev", -1, -1, 1 << 24));
    if (node.net.dev < 0) {
      node.net.dev = static_cast<int>(net_numbers_.size());
      repair(child.line, fmt::format("<net name=\"{}\"> without dev: numbered {}", node.net.name,
                                     node.net.dev));
    }
    node.id = node.net.dev;
    if (!net_numbers_.emplace(node.host, node.id).second) {
      return wrong(child, "dev", std::to_string(node.net.dev), "another <net> has it");
    }
    CCL_TRY(int mbps, integer(child, "speed", 0, -1, 2000000000));
    if (mbps <= 0) {
      mbps = 10000;
      const std::string given = text(child, "speed");
      repair(child.line, fmt::format("<net name=\"{}\"> {}: taken as 10 Gbit/s", node.net.name,
                                     given.empty() ? std::string("without speed")
                                                   : fmt::format("speed=\"{}\"", given)));
    }
    node.net.bw = static_cast<float>(mbps) / 8000.0F;
    CCL_TRY(node.net.port, integer(child, "port", 0, -1, 1 << 24));
    CCL_TRY(node.net.latency, real(child, "latency", 0));
    CCL_TRY(node.net.max_connections, integer(child, "maxconn", 0, 0, 0x7fffffff));
    CCL_TRY(const int gdr, integer(child, "gdr", 0, -1, 1000));
    CCL_TRY(const int coll, integer(child, "coll", 0, -1, 1000));
    node.net.gdr = gdr > 0;
    node.net.coll = coll > 0;
    const std::string guid = text(child, "guid");
    if (!guid.empty()) {
      // The whole guid is compared: cards of one maker have a common prefix.
      const char* const first =
          guid.c_str() + (guid.starts_with("0x") || guid.starts_with("0X") ? 2 : 0);
      const char* const last = guid.c_str() + guid.size();
      const auto [end, error] = std::from_chars(first, last, node.net.guid, 16);
      if (error != std::errc() || end != last) {
        return wrong(child, "guid", guid, "not a hexadecimal number of 64 bits");
      }
    }
    check_net_name(child, node);
    node.net.port = port_of_card(node, before);
    node.others = attributes_but(
        child, {"name", "dev", "latency", "speed", "port", "guid", "maxconn", "gdr", "coll"});
    const float bw = node.net.bw;
    const int net = graph.add(std::move(node));
    net_lines_[net] = child.line;
    nets_of_[nic].push_back(net);
    graph.connect(nic, net, LinkType::net, bw);
    graph.connect(net, nic, LinkType::net, bw);
  }
  return {};
}

/// Numbers NETs anew whose number one of another host has, or that is too large for what ranks send
/// each other: the search and ranks know a NET by its number alone.
void Loader::number_nets() {
  constexpr int most = std::numeric_limits<std::int16_t>::max();
  Graph& graph = loaded_.graph;
  const std::vector<int> nets = graph.of(NodeType::net);
  std::set<int> taken;
  std::vector<int> again;
  for (const int net : nets) {
    const int number = graph.nodes[net].net.dev;
    if (number > most || !taken.insert(number).second) again.push_back(net);
  }
  int next = taken.empty() ? 0 : *taken.rbegin() + 1;
  for (const int net : again) {
    if (next > most) next = 0;
    while (taken.contains(next)) ++next;
    Node& node = graph.nodes[net];
    repair(net_lines_[net],
           fmt::format("<net name=\"{}\"> dev=\"{}\" {}: numbered {}", node.net.name, node.net.dev,
                       node.net.dev > most ? fmt::format("is above {}", most)
                                           : "is that of a <net> of another host, too",
                       next));
    node.id = node.net.dev = next;
    taken.insert(next++);
  }
}

// NETs of one guid and port share a wire. Guid 0 is unknown, so such a NET has
// a wire of its own.
void Loader::name_unknown_wires() {
  int first = -1;
  int count = 0;
  for (const int net : loaded_.graph.of(NodeType::net)) {
    if (loaded_.graph.nodes[net].net.guid != 0) continue;
    if (count++ == 0) first = net;
  }
  if (count > 1) {
    repair(net_lines_[first],
           fmt::format("{} NETs have no guid: each taken as a wire of its own", count));
  }
}

}  // namespace ccl::topo::detail
