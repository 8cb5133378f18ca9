#include "bootstrap/members/host_tree.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace ccl::detail {
namespace {

/// Hangs rank i of a list below rank (i - 1) / fan_out.
void add_tree(std::vector<int>& parents, const std::vector<int>& ranks) {
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    parents[std::size_t(ranks[i])] = ranks[(i - 1) / HostTree::fan_out];
  }
}

std::vector<int> parents_of(const std::vector<RankPlace>& places) {
  std::vector<std::vector<int>> hosts;  // in the order of their first ranks
  std::unordered_map<std::uint64_t, std::size_t> index;
  for (std::size_t r = 0; r < places.size(); ++r) {
    const auto [at, added] = index.try_emplace(places[r].host_hash, hosts.size());
    if (added) hosts.emplace_back();
    hosts[at->second].push_back(int(r));
  }
  std::vector<int> parents(places.size(), -1), firsts;
  for (const std::vector<int>& host : hosts) {
    add_tree(parents, host);
    firsts.push_back(host[0]);
  }
  add_tree(parents, firsts);
  return parents;
}

/// Appends a rank and all below it: each rank before its children.
void add_subtree(std::vector<int>& ranks, const std::vector<std::vector<int>>& children, int rank) {
  ranks.push_back(rank);
  for (const int child : children[std::size_t(rank)]) add_subtree(ranks, children, child);
}

int height_of(const std::vector<std::vector<int>>& children, int rank) {
  int most = 0;
  for (const int child : children[std::size_t(rank)]) {
    most = std::max(most, 1 + height_of(children, child));
  }
  return most;
}

}  // namespace

HostTree::HostTree(const std::vector<RankPlace>& places, int rank) {
  const std::vector<int> parents = parents_of(places);
  parent = parents[std::size_t(rank)];
  std::vector<std::vector<int>> children(places.size());
  for (std::size_t r = 0; r < places.size(); ++r) {
    if (parents[r] >= 0) children[std::size_t(parents[r])].push_back(int(r));
  }
  height = height_of(children, rank);
  levels = height_of(children, 0);  // rank 0 is the first of the first host
  for (const int child : children[std::size_t(rank)]) {
    below.emplace_back();
    add_subtree(below.back(), children, child);
  }
}

}  // namespace ccl::detail
