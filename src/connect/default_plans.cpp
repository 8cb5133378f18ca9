#include <ccl/detail/compose/default_plans.hpp>
#include <ccl/transport/ib.hpp>

#include <algorithm>
#include <map>
#include <string_view>

#include "comm/rank/machine_facts.hpp"
#include "comm/state.hpp"

namespace ccl::detail {

namespace {
/// Returns the largest number of ranks on other hosts that any rank has, at least 2. A single one
/// then gets 8 channels: send_recv of 16 MiB over TCP between GPUs took 1957 us with 8 channels and
/// 2736 us with 2.
int max_far_ranks(const Communicator& comm) {
  std::map<Word, int> here;  // number of ranks on each host
  for (int r = 0; r < comm.ranks(); ++r) ++here[comm.peer(r).host_hash];
  int fewest = comm.ranks();
  for (const auto& [host, ranks] : here) fewest = std::min(fewest, ranks);
  return std::max(2, comm.ranks() - fewest);
}

/// True if all data on a network goes by RDMA. All ranks get the same result. NVLink may join rank
/// 0 with some of the other hosts.
bool all_by_rdma(const Communicator& comm, const TransportTable& by) {
  int kinds = ~0;
  for (int r = 0; r < comm.ranks(); ++r) kinds &= comm.peer(r).ib_kinds;
  if (kinds == 0) return false;
  for (int r = 1; r < comm.ranks(); ++r) {
    PeerInfo from = comm.peer(0), to = comm.peer(r);
    if (from.host_hash == to.host_hash) continue;
    from.way = to.way = {};  // each rank has its own
    const EdgeTransport edge = by.edge_transport(from, to);
    if (edge.medium == Medium::network)
      return edge.transport == std::string_view{IbTransport::name};
  }
  return false;
}
}  // namespace

Result<Plans> wire_plans(const WirePlansOf& of, const Communicator& comm, const TransportTable& by,
                         const std::optional<Plan>& given) {
  const bool on_device = comm.device() >= 0;
  const CommState& state = *Access::state(comm);
  int neighbors = 1;
  for (int r = 1; r < comm.ranks(); ++r) {
    neighbors += int(comm.peer(r).host_hash == comm.peer(0).host_hash);
  }
  Plans plans = given       ? Plans::same(*given)
                : on_device ? of.on_device(network_facts(state.identity, all_by_rdma(comm, by)),
                                           host_facts(state.identity), state.device.max_blocks)
                            : of.on_host(neighbors);
  // Bytes that a GPU's lanes move at once: 16 bytes for each of 128 lanes, or a tile with flags for
  // a warp.
  if (on_device) plans.min_slot_bytes = 2048;
  if (given) return plans;
  Plan& network = plans.by_medium[int(Medium::network)];
  if (on_device && of.to_many && !of.carries_flags) {
    const int far = max_far_ranks(comm);
    network.channels = std::max(network.channels, 16 / far);
    // A single peer gets all NICs of a GPU. Among many peers their turns do that.
    const int nics = std::min(state.identity.arrangement().max_nets(), 8);
    if (far * nics <= 64 && all_by_rdma(comm, by)) {
      network.channels = std::max(network.channels, nics);
    }
  }
  for (Plan& plan : plans.by_medium) {
    CCL_TRY(plan, with_buffer_setting(plan, of.proto));
  }
  if (of.serves_pairs) {
    CCL_TRY(network, with_net_channels(network, state.identity.config().net_channels));
  }
  return plans;
}

}  // namespace ccl::detail
