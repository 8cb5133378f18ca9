#include <ccl/topo/fuse.hpp>
#include <ccl/topo/path.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.hpp"
#include "settings/report.hpp"
#include "topo/graph/path_row.hpp"

namespace ccl::topo {
namespace {

using Group = std::vector<int>;  // NET nodes

std::string rail_of(const Node& net) {
  for (const auto& [key, value] : net.others) {
    if (key == "rail") return value;
  }
  return {};
}

class Fuser {
 public:
  Fuser(const Graph& graph, const FuseRules& rules)
      : graph_(graph), rules_(rules), taken_(graph.nodes.size(), 0) {}

  Graph run() {
    const std::vector<int> nets = graph_.of(NodeType::net);
    for (const auto& names : rules_.forced) take(named(nets, names));
    if (rules_.level != FuseLevel::none) {
      if (rules_.level > FuseLevel::port) find_types(nets);
      for (const int net : nets) take(near(nets, net));
    }
    if (groups_.empty()) return graph_;
    std::vector<char> keep(graph_.nodes.size(), 1);
    for (const Group& group : groups_) {
      for (const int net : group) keep[net] = 0;
    }
    // A card whose NETs have all been fused is removed, unless it holds the fused NET.
    for (const int nic : graph_.of(NodeType::nic)) {
      const bool used = std::any_of(nets.begin(), nets.end(), [&](int net) {
        return graph_.nodes[net].parent == nic && keep[net] != 0;
      });
      const bool stands = std::any_of(groups_.begin(), groups_.end(),
                                      [&](const Group& g) { return above(g) == nic; });
      keep[nic] = used || stands ? 1 : 0;
    }
    Graph fused = select(graph_, keep);
    std::vector<int> now(graph_.nodes.size(), -1);
    for (std::size_t n = 0, next = 0; n < keep.size(); ++n) {
      if (keep[n] != 0) now[n] = static_cast<int>(next++);
    }
    int dev = -1, loose = 0;
    for (const int net : nets) dev = std::max(dev, graph_.nodes[net].net.dev);
    for (const Group& group : groups_) add(fused, group, now[above(group)], ++dev, loose++);
    return fused;
  }

 private:
  void take(Group group) {
    if (group.size() < 2) return;
    for (const int net : group) taken_[net] = 1;
    groups_.push_back(std::move(group));
  }

  /// Keeps the types alone, since the paths between thousands of NETs would fill a gigabyte.
  void find_types(const std::vector<int>& nets) {
    place_.assign(graph_.nodes.size(), 0);
    for (std::size_t n = 0; n < nets.size(); ++n) place_[nets[n]] = n;
    ccl::topo::detail::PathRows rows(graph_);
    for (const int to : nets) {
      const ccl::topo::detail::PathRow row = rows.to(to, false);
      std::vector<PathType>& types = types_.emplace_back();
      for (const int from : nets) types.push_back(row.entries[from].type);
    }
  }

  Group named(const std::vector<int>& nets,
              const std::vector<std::pair<std::string, int>>& names) const {
    Group group;
    for (const int net : nets) {
      const Node::Net& n = graph_.nodes[net].net;
      const bool wanted = std::any_of(names.begin(), names.end(), [&](const auto& name) {
        return name.first == n.name && (name.second == 0 || name.second == n.port);
      });
      if (wanted && taken_[net] == 0 && fits(group, net)) group.push_back(net);
    }
    return group;
  }

  Group near(const std::vector<int>& nets, int first) const {
    if (taken_[first] != 0) return {};
    Group group{first};
    for (const int net : nets) {
      if (net <= first || taken_[net] != 0 || !fits(group, net)) continue;
      const bool close = std::all_of(group.begin(), group.end(), [&](int other) {
        return distance(other, net) <= rules_.level &&
               (!rules_.same_rail || rail_of(graph_.nodes[other]) == rail_of(graph_.nodes[net]));
      });
      if (close) group.push_back(net);
    }
    return group;
  }

  bool fits(const Group& group, int net) const {
    return group.empty() || (static_cast<int>(group.size()) < rules_.most &&
                             graph_.nodes[group[0]].host == graph_.nodes[net].host);
  }

  FuseLevel distance(int a, int b) const {
    if (graph_.nodes[a].parent == graph_.nodes[b].parent) return FuseLevel::port;
    if (rules_.level <= FuseLevel::port) return FuseLevel::sys;
    switch (types_[place_[b]][place_[a]]) {
      case PathType::pix:
        return FuseLevel::pix;
      case PathType::pxb:
        return FuseLevel::pxb;
      case PathType::phb:
        return FuseLevel::phb;
      default:
        return FuseLevel::sys;
    }
  }

  /// Lowest node above all NETs of a group; with several CPUs, the first NET's CPU.
  int above(const Group& group) const {
    int at = graph_.nodes[group[0]].parent;
    const auto hangs_on = [&](int net, int node) {
      for (int n = net; n >= 0; n = graph_.nodes[n].parent) {
        if (n == node) return true;
      }
      return false;
    };
    while (graph_.nodes[at].parent >= 0 &&
           !std::all_of(group.begin(), group.end(), [&](int net) { return hangs_on(net, at); })) {
      at = graph_.nodes[at].parent;
    }
    return at;
  }

  void add(Graph& fused, const Group& group, int at, int dev, int loose) const {
    Node node = graph_.nodes[group[0]];
    node.out.clear();
    node.id = node.net.dev = dev;
    for (std::size_t n = 1; n < group.size(); ++n) {
      const Node::Net& other = graph_.nodes[group[n]].net;
      node.net.name += "+" + other.name;
      node.net.bw += other.bw;
      node.net.latency = std::max(node.net.latency, other.latency);
      node.net.max_connections = std::min(node.net.max_connections, other.max_connections);
      node.net.gdr = node.net.gdr && other.gdr;
      node.net.coll = node.net.coll && other.coll;
    }
    int nic = at;
    if (fused.nodes[at].type == NodeType::cpu) {
      nic = add_loose(fused, at, node.host, loose);
    } else if (fused.nodes[at].type == NodeType::pci) {
      nic = add_card(fused, at, group);
    }
    node.parent = nic;
    const float bw = node.net.bw;
    const int net = fused.add(std::move(node));
    fused.connect(nic, net, LinkType::net, bw);
    fused.connect(net, nic, LinkType::net, bw);
  }

  static int add_loose(Graph& fused, int at, int host, int number) {
    Node card;
    card.type = NodeType::nic;
    card.parent = at;
    card.host = host;
    for (const int known : fused.of(NodeType::nic)) {
      if (fused.nodes[known].pci.bus_id.empty()) ++number;
    }
    card.id = number;
    const int nic = fused.add(std::move(card));
    fused.connect(nic, at, LinkType::pci, gbps::loc);
    fused.connect(at, nic, LinkType::pci, gbps::loc);
    return nic;
  }

  /// Below a switch all cards become one at the place of the first, with the sum of their lanes, as
  /// in topology files.
  int add_card(Graph& fused, int at, const Group& group) const {
    std::vector<int> cards;
    for (const int net : group) {
      const int card = graph_.nodes[net].parent;
      if (std::find(cards.begin(), cards.end(), card) == cards.end()) cards.push_back(card);
    }
    Node one = graph_.nodes[cards[0]];
    const auto known = [&](const Node& n) {
      return n.type == one.type && n.id == one.id && n.host == one.host;
    };
    const auto standing = std::find_if(fused.nodes.begin(), fused.nodes.end(), known);
    if (standing != fused.nodes.end()) return static_cast<int>(standing - fused.nodes.begin());
    one.out.clear();
    one.kept.clear();
    one.parent = at;
    one.pci.link_width = 0;
    float bw = 0;
    for (const int card : cards) {
      const int width = graph_.nodes[card].pci.link_width;
      one.pci.link_width += width == 0 ? 16 : width;
      for (const int l : graph_.nodes[card].out) {
        if (graph_.links[l].to == graph_.nodes[card].parent) bw += graph_.links[l].bw;
      }
    }
    const int nic = fused.add(std::move(one));
    fused.connect(nic, at, LinkType::pci, bw);
    fused.connect(at, nic, LinkType::pci, bw);
    return nic;
  }

  const Graph& graph_;
  const FuseRules& rules_;
  // Types of the paths between NETs as wired, [to][from]; only for levels above a card.
  std::vector<std::vector<PathType>> types_;
  std::vector<std::size_t> place_;  // of a NET in `types_`
  std::vector<char> taken_;
  std::vector<Group> groups_;
};

}  // namespace

bool parse(std::string_view text, FuseLevel& level) {
  constexpr std::array<std::string_view, 6> names{"LOC", "PORT", "PIX", "PXB", "PHB", "SYS"};
  const auto same = [&](std::string_view name) {
    return std::equal(name.begin(), name.end(), text.begin(), text.end(),
                      [](char a, char b) { return a == ccl::detail::upper(b); });
  };
  const auto* const found = std::find_if(names.begin(), names.end(), same);
  if (found == names.end()) return false;
  level = static_cast<FuseLevel>(found - names.begin());
  return true;
}

Result<std::vector<std::vector<std::pair<std::string, int>>>> parse_groups(std::string_view text) {
  std::vector<std::vector<std::pair<std::string, int>>> groups;
  const auto next = [](std::string_view& rest, char end) {
    const std::size_t at = std::min(rest.find(end), rest.size());
    const std::string_view word = rest.substr(0, at);
    rest.remove_prefix(std::min(at + 1, rest.size()));
    return word;
  };
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view list = next(rest, ';');
    auto& group = groups.emplace_back();
    while (!list.empty()) {
      const std::string_view word = next(list, ',');
      const std::size_t colon = std::min(word.find(':'), word.size());
      int port = 0;
      const std::string_view number = word.substr(std::min(colon + 1, word.size()));
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), port);
      const bool wrong = colon < word.size() &&
                         (error != std::errc() || port < 1 || end != number.data() + number.size());
      if (wrong || colon == 0) {
        return fail(Errc::bad_setting,
                    fmt::format("{}={} does not fit (\"{}\" names no NIC); it "
                                "takes groups parted by semicolons, each a list of names, with or "
                                "without :port, parted by commas",
                                ccl::detail::variable_of("NET_FORCE_MERGE"), text, word));
      }
      group.emplace_back(std::string(word.substr(0, colon)), port);
    }
  }
  return groups;
}

Graph fuse_nets(const Graph& graph, const FuseRules& rules) {
  return Fuser(graph, rules).run();
}

}  // namespace ccl::topo
