#pragma once

#include <ccl/types/peer_info.hpp>
#include <ccl/types/result.hpp>
#include <ccl/topo/arrange.hpp>
#include <ccl/topo/configured.hpp>
#include <ccl/topo/discover.hpp>

#include <span>
#include <vector>

namespace ccl::topo {

/// What a rank says of its GPU, so that all of its host make one machine of them, whatever each
/// sees. Travels as bytes.
struct GpuReport {
  static constexpr int max_links = 18;
  int seen = 0;  // 0: no driver told anything
  int dev = 0, sm = 0, mig = 0, c2c_links = 0, c2c_mbps = 0, link_count = 0;
  struct {
    std::int64_t remote = -1;  // -1: not known
    int count = 0;
  } links[max_links];
};
GpuReport sight_of(std::int64_t bus_id);

/// NVLink of one width between all pairs of GPUs: their order does not matter.
bool all_alike(const Graph& graph, const Paths& paths);

/// Ranks that share a GPU or, on CPUs, a NUMA node.
struct SearchPlace {
  std::int64_t key = 0;  // bus id; NUMA node
  std::vector<int> ranks;
};
/// Of the ranks that share a host with `rank`, by key, which is the same for all of them.
std::vector<SearchPlace> places_of(std::span<const PeerInfo> peers, int rank);

/// A machine with a seat for each place, and how they reach each other. The seat of place n has
/// rank n in `graph`.
struct RankPlacement {
  Graph graph;
  Paths paths;
  PathRules rules;
  bool known = true;  // false: nobody could say how GPUs are connected
};
/// `sights`: of all ranks; empty on CPUs.
[[nodiscard]] Result<RankPlacement> place_ranks(std::span<const PeerInfo> peers,
                                        std::span<const GpuReport> sights, int rank,
                                        const std::vector<SearchPlace>& places);

/// Channels of the machine that `rank` is part of, in ranks of the communicator. With `dump`, the
/// files that were asked for are written.
[[nodiscard]] Result<Machine> channels_of(const RankPlacement& placement, const std::vector<SearchPlace>& places,
                                          int rank, int ranks, bool dump);

}  // namespace ccl::topo
