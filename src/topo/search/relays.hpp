#pragma once

#include <ccl/types/peer_info.hpp>

#include <span>
#include <vector>

#include "topo/search/place_ranks.hpp"

namespace ccl::topo {

// Ways of ranks to NICs over GPUs of other ranks (PXN).

/// True if each of the ranks of `rank`'s host may keep memory on the GPUs of all others, which its
/// process sees or which are lent.
bool all_reach(std::span<const PeerInfo> peers, std::span<const GpuReport> sights, int rank);

/// True if the way of another rank to a NIC leads over `rank`'s GPU, node `gpu`, which the other
/// rank's process does not see. `rank` then lends memory of its GPU.
bool lends_for_relays(const RankPlacement& placement, std::span<const PeerInfo> peers,
                      std::span<const GpuReport> sights, int rank,
                      const std::vector<SearchPlace>& places, int gpu);

}  // namespace ccl::topo
