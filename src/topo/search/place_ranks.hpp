#pragma once

#include <ccl/topo/arrange.hpp>
#include <ccl/topo/configured.hpp>
#include <ccl/topo/discover.hpp>
#include <ccl/types/peer_info.hpp>
#include <ccl/types/result.hpp>

#include <span>
#include <string>
#include <vector>

#include "topo/search/host_nic.hpp"

namespace ccl::topo {

/// A rank's report on its GPU. All ranks of a host build the same machine from these reports,
/// whatever each of them sees. Travels as bytes.
struct GpuReport {
  static constexpr int max_links = 18;
  int seen = 0;  // 0: no driver reported anything
  int dev = 0, sm = 0, mig = 0, c2c_links = 0, c2c_mbps = 0, link_count = 0;
  std::uint64_t sees = 0;  // bit n: its process may keep memory on the GPU of its host's n-th rank
  int lends = 0;           // 1: it may lend memory of its GPU to processes that do not see it
  struct {
    std::int64_t remote = -1;  // -1: not known
    int count = 0;
  } links[max_links];
};
GpuReport sight_of(std::int64_t bus_id);
/// Return what does not fit in the part of another rank, or an empty text.
std::string wrong_report(const GpuReport& report);
std::string wrong_share(const MachineShare& share, int ranks);

/// Ranks that share a GPU or, on CPUs, a NUMA node.
struct SearchPlace {
  std::int64_t key = 0;  // bus id; NUMA node
  std::vector<int> ranks;
};
/// Places of the ranks that share a host with `rank`, by key; equal on all of them.
std::vector<SearchPlace> places_of(std::span<const PeerInfo> peers, int rank);

/// A machine with a node for each place, and the paths between them. The node of place n has rank n
/// in `graph`.
struct RankPlacement {
  Graph graph;
  Paths paths;
  PathRules rules;
  bool known = true;  // false: the links between GPUs are unknown
};
/// `sights` has an entry for each rank; it is empty on CPUs.
[[nodiscard]] Result<RankPlacement> place_ranks(std::span<const PeerInfo> peers,
                                                std::span<const GpuReport> sights, int rank,
                                                const std::vector<SearchPlace>& places);

/// Device numbers of NETs, without those that a `MachineShare` cannot hold.
std::vector<int> net_devices(const Graph& graph, const std::vector<int>& nets);

/// Device numbers of the NETs by which messages of a GPU may leave: see `Machine::nets` and
/// `Machine::rails`. -1: there is no GPU, and none are known.
struct MessageNets {
  std::vector<int> near, rails;
};
MessageNets message_nets(const Graph& graph, const Paths& paths, int gpu, const NetRules& rules);

/// NICs of the machine, in file order, whether they may access the memory of GPU node `gpu`, and
/// the GPU over which it sends by them. -1: the rank has none.
[[nodiscard]] Result<std::vector<HostNic>> nics_of(const RankPlacement& placement, int gpu);
/// Channels of the machine of `rank`, in ranks of the communicator. With `dump`, writes the files
/// that settings ask for.
[[nodiscard]] Result<Machine> channels_of(const RankPlacement& placement,
                                          const std::vector<SearchPlace>& places, int rank,
                                          int ranks, bool dump);

}  // namespace ccl::topo
