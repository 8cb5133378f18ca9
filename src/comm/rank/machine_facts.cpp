#include "comm/rank/machine_facts.hpp"

#include <algorithm>

#include "comm/rank/identity.hpp"

namespace ccl::detail {

HostFacts host_facts(const Identity& identity) {
  const topo::Arrangement& arrangement = identity.arrangement();
  HostFacts facts;
  facts.gpu_gbs = arrangement.gpu_gbs();
  facts.nvlink = arrangement.by_nvlink();
  for (const PeerInfo& peer : identity.peers()) {
    const int capability = peer.compute_capability;
    if (capability == 0) continue;
    facts.compute_capability =
        facts.compute_capability == 0 ? capability : std::min(facts.compute_capability, capability);
  }
  return facts;
}

NetworkFacts network_facts(const Identity& identity, bool rdma) {
  const topo::Arrangement& arrangement = identity.arrangement();
  return {rdma, arrangement.between_gbs(), arrangement.ring_count()};
}

}  // namespace ccl::detail
