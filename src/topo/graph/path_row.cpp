#include "topo/graph/path_row.hpp"

#include <algorithm>
#include <tuple>

namespace ccl::topo::detail {
namespace {

int fabric_rank(PathType type) {
  return type <= PathType::nvl ? 0 : type == PathType::nvb ? 1 : 2;
}

/// Type of the path over `link` and then along a path of type `rest` to its end.
PathType extend_type(const Graph& graph, const Link& link, PathType rest) {
  const Node& from = graph.nodes[link.from];
  const Node& to = graph.nodes[link.to];
  PathType type = link.type == LinkType::net ? PathType::loc : static_cast<PathType>(link.type);
  if (from.type == NodeType::pci && to.type == NodeType::pci) type = PathType::pxb;
  if (link.type == LinkType::pci && (from.type == NodeType::cpu || to.type == NodeType::cpu)) {
    type = PathType::phb;
  }
  if (to.type == NodeType::gpu && rest == PathType::nvl && type == PathType::nvl) {
    type = PathType::nvb;
  }
  return std::max(rest, type);
}

bool in_partial_rows(NodeType type) {
  return type == NodeType::gpu || type == NodeType::cpu || type == NodeType::nvs;
}

}  // namespace

void PathRow::set(std::size_t entry, PathType type, float bw, std::span<const int> first,
                  std::span<const int> second) {
  Entry& e = entries[entry];
  e.type = type;
  e.bw = bw;
  e.first = std::uint32_t(links.size());
  e.hops = std::uint32_t(first.size() + second.size());
  links.insert(links.end(), first.begin(), first.end());
  links.insert(links.end(), second.begin(), second.end());
}

PathRows::PathRows(const Graph& graph)
    : graph_(graph),
      into_(graph.nodes.size()),
      through_(graph.nodes.size()),
      dead_end_(graph.nodes.size(), 0),
      way_out_(graph.nodes.size(), -1),
      places_(graph.nodes.size(), -1),
      best_(graph.nodes.size()),
      queued_(graph.nodes.size(), 0) {
  for (const Node& node : graph.nodes) {
    for (const int l : node.out) into_[graph.links[l].to].push_back(l);
  }
  find_dead_ends();
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (in_partial_rows(graph.nodes[n].type)) {
      places_[n] = static_cast<int>(kept_.size());
      kept_.push_back(static_cast<int>(n));
    }
    for (const int l : into_[n]) {
      if (dead_end_[graph.links[l].from] == 0) through_[n].push_back(l);
    }
  }
}

/// Marks nodes with one neighbor, and those that have one without them: no best path leads through
/// them. Thousands of NICs then cost the rows of others nothing.
void PathRows::find_dead_ends() {
  std::vector<int> list;
  for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) list.push_back(n);
  while (!list.empty()) {
    const int node = list.back();
    list.pop_back();
    if (dead_end_[node] != 0 || in_partial_rows(graph_.nodes[node].type)) continue;
    int neighbor = -1;
    const auto is_second = [&](int other) {
      if (dead_end_[other] != 0 || other == node) return false;
      const bool second = neighbor >= 0 && neighbor != other;
      neighbor = other;
      return second;
    };
    const bool leads_on = std::any_of(graph_.nodes[node].out.begin(), graph_.nodes[node].out.end(),
                                      [&](int l) { return is_second(graph_.links[l].to); }) ||
                          std::any_of(into_[node].begin(), into_[node].end(),
                                      [&](int l) { return is_second(graph_.links[l].from); });
    if (leads_on) continue;
    dead_end_[node] = 1;
    way_out_[node] = neighbor;
    if (neighbor >= 0) list.push_back(neighbor);
  }
}

/// Takes the path over `l` to `node` and on from there, if it is better than the known one.
void PathRows::relax(int target, int node, int l) {
  const Link& link = graph_.links[l];
  if (link.from == target || link.bw <= 0) return;
  const Best& rest = best_[node];
  // A GPU relays only data from another GPU's NVLink, and only over its own last link.
  if (node != target && graph_.nodes[node].type == NodeType::gpu &&
      (link.type != LinkType::nvl || graph_.nodes[link.from].type != NodeType::gpu ||
       rest.hops > 1)) {
    return;
  }
  Best& known = best_[link.from];
  const float bw = std::min(rest.bw, link.bw);
  const PathType type = extend_type(graph_, link, rest.type);
  const auto key = std::tuple(fabric_rank(type), -bw, rest.hops + 1, type);
  if (known.type != PathType::dis &&
      key >= std::tuple(fabric_rank(known.type), -known.bw, known.hops, known.type)) {
    return;
  }
  steps_.push_back({l, rest.first});
  known = {type, bw, rest.hops + 1, static_cast<int>(steps_.size()) - 1};
  if (queued_[link.from] != 0) return;
  queued_[link.from] = 1;
  queue_.push_back(link.from);
}

void PathRows::pack(PathRow& row, int node) const {
  const Best& best = best_[node];
  PathRow::Entry entry;
  entry.bw = best.bw;
  entry.first = std::uint32_t(row.links.size());
  entry.hops = std::uint32_t(best.hops);
  entry.type = best.type;
  for (int step = best.first; step >= 0; step = steps_[step].next) {
    row.links.push_back(steps_[step].link);
  }
  row.entries.push_back(entry);
}

PathRow PathRows::to(int target, bool partial) {
  std::fill(best_.begin(), best_.end(), Best{});
  steps_.clear();
  queue_.assign(1, target);
  best_[target].type = PathType::loc;
  best_[target].bw = gbps::loc;
  for (std::size_t head = 0; head < queue_.size(); ++head) {
    const int node = queue_[head];
    queued_[node] = 0;
    // A partial row needs only the dead ends between its target and the rest.
    const bool all = !partial || dead_end_[node] != 0;
    for (const int l : all ? into_[node] : through_[node]) {
      const int from = graph_.links[l].from;
      if (partial && dead_end_[from] != 0 && way_out_[node] != from) continue;
      relax(target, node, l);
    }
  }
  PathRow row;
  row.partial = partial;
  if (partial) {
    for (const int n : kept_) pack(row, n);
  } else {
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) pack(row, n);
  }
  row.entries.shrink_to_fit();
  row.links.shrink_to_fit();
  return row;
}

}  // namespace ccl::topo::detail
