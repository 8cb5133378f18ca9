#include "topo/search/relays.hpp"

#include <ccl/topo/path.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace ccl::topo {

namespace {
constexpr int max_places = std::numeric_limits<std::uint64_t>::digits;

/// Place of each rank among those of its host, as in the bits of a `GpuReport`; -1: of other hosts.
std::vector<int> places_on_host(std::span<const PeerInfo> peers, int rank) {
  const auto host = peers[static_cast<std::size_t>(rank)].host_hash;
  std::vector<int> found;
  int next = 0;
  for (const PeerInfo& peer : peers) found.push_back(peer.host_hash == host ? next++ : -1);
  return found;
}

bool sees(const GpuReport& of, int place) {
  return place < max_places && (of.sees >> place & 1) != 0;
}
}  // namespace

bool all_reach(std::span<const PeerInfo> peers, std::span<const GpuReport> sights, int rank) {
  const std::vector<int> at = places_on_host(peers, rank);
  for (std::size_t from = 0; from < peers.size(); ++from) {
    for (std::size_t to = 0; at[from] >= 0 && to < peers.size(); ++to) {
      if (at[to] >= 0 && !sees(sights[from], at[to]) && sights[to].lends == 0) return false;
    }
  }
  return true;
}

bool lends_for_relays(const RankPlacement& placement, std::span<const PeerInfo> peers,
                      std::span<const GpuReport> sights, int rank,
                      const std::vector<SearchPlace>& places, int gpu) {
  if (!placement.rules.pxn || gpu < 0) return false;
  const Graph& graph = placement.graph;
  const int mine = places_on_host(peers, rank)[static_cast<std::size_t>(rank)];
  for (const int net : graph.of(NodeType::net)) {
    if (local_gpu(graph, placement.paths, net) != gpu) continue;
    for (const int other : graph.of(NodeType::gpu)) {
      if (placement.paths.at(other, net).type != PathType::pxn) continue;
      for (const int there : places[static_cast<std::size_t>(graph.nodes[other].gpu.rank)].ranks) {
        if (!sees(sights[static_cast<std::size_t>(there)], mine)) return true;
      }
    }
  }
  return false;
}

}  // namespace ccl::topo
