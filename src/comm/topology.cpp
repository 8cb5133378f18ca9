#include <ccl/comm/log.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "comm/rank_results.hpp"
#include "topo/search/place_ranks.hpp"

namespace ccl::detail {
namespace {

/// Nothing that a machine could tell would change an order: CPU ranks of one host that no NUMA
/// node tells apart. All ranks come to the same.
bool all_alike(const CommState& state) {
  const PeerInfo& first = state.peers[0];
  return std::all_of(state.peers.begin(), state.peers.end(), [&](const PeerInfo& p) {
    return p.device < 0 && p.host_hash == first.host_hash && p.numa == first.numa &&
           p.looks_closely == 0;
  });
}

/// What the way to each rank of this host is like.
void judge_ways(CommState& state, const topo::RankPlacement& placement,
                const std::vector<topo::SearchPlace>& places) {
  if (!state.gpu || !placement.known) return;
  const auto place_of = [&](int rank) {
    for (std::size_t p = 0; p < places.size(); ++p) {
      const auto& ranks = places[p].ranks;
      if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return int(p);
    }
    return -1;
  };
  const int mine = placement.graph.gpu_of_rank(place_of(state.rank));
  for (PeerInfo& peer : state.peers) {
    const int place = place_of(peer.rank);
    const int theirs = place < 0 ? -1 : placement.graph.gpu_of_rank(place);
    if (theirs < 0 || theirs == mine) continue;
    const auto p2p = topo::check_p2p(placement.graph, placement.paths, placement.rules, mine, theirs);
    peer.way.avoid_p2p = !p2p.allowed;
    peer.way.prefer_rdma = topo::net_beats_p2p(placement.graph, placement.paths, mine, theirs);
    if (!p2p.allowed) {
      log_info(LogPart::graph, "rank {} to {}: not by P2P ({})", state.rank, peer.rank, p2p.why);
    }
  }
}

}  // namespace

Result<void> arrange_ranks(CommState& state) {
  state.arrangement = topo::Arrangement::in_order(state.ranks);
  if (all_alike(state)) return {};
  const auto began = std::chrono::steady_clock::now();
  std::vector<topo::GpuReport> sights(state.gpu ? std::size_t(state.ranks) : 0);
  if (state.gpu && state.ranks > 1) {
    sights[std::size_t(state.rank)] = topo::sight_of(state.peers[std::size_t(state.rank)].bus_id);
    CCL_CHECK(state.bootstrap->all_gather(sights.data(), Index{sizeof(topo::GpuReport)}));
  } else if (state.ranks == 1) {
    if (state.peers[0].looks_closely == 0) return {};
    if (state.gpu) sights[0] = topo::sight_of(state.peers[0].bus_id);
  }
  const std::vector<topo::SearchPlace> places = topo::places_of(state.peers, state.rank);
  const auto look = [&]() -> Result<topo::Machine> {
    CCL_TRY(const topo::RankPlacement placement, topo::place_ranks(state.peers, sights, state.rank, places));
    judge_ways(state, placement, places);
    return topo::channels_of(placement, places, state.rank, state.ranks, state.rank == 0);
  };
  auto machine = look();
  // A rank that fails must not leave the others waiting for what it has to tell.
  std::vector<topo::MachineShare> all(std::size_t(state.ranks));
  if (machine) all[std::size_t(state.rank)] = topo::share_of(*machine, state.rank);
  if (state.ranks > 1) {
    CCL_CHECK(state.bootstrap->all_gather(all.data(), Index{sizeof(topo::MachineShare)}));
  }
  const auto blind = std::find_if(
      all.begin(), all.end(), [](const topo::MachineShare& share) { return share.machine < 0; });
  if (blind != all.end()) {
    Result<void> mine;
    if (!machine) mine = fail(std::move(machine).error());
    if (state.ranks == 1) return mine;
    return all_agree(state, "looking at the topology", mine);
  }
  std::string wrong;
  std::vector<topo::Machine> machines = topo::machines_of(all, wrong);
  if (!wrong.empty()) log_warn(LogPart::graph, "{}", wrong);
  CCL_TRY(state.arrangement, topo::Arrangement::of(std::move(machines), state.ranks));
  if (state.rank == 0) {
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    log_info(LogPart::graph, "{} ranks on {} machines, {} rings, in {:.1f} ms; the first: {}",
             state.ranks, state.arrangement.machine_count(), state.arrangement.ring_count(),
             took.count(), fmt::join(state.arrangement.ring(0), " "));
  }
  return {};
}

}  // namespace ccl::detail
