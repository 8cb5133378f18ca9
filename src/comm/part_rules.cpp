#include "comm/part_rules.hpp"

#include <climits>

#include "base/field_check.hpp"
#include "net/message_rules.hpp"
#include "transport/ib/verbs/presence.hpp"
#include "transport/plug_in/presence.hpp"

namespace ccl::detail {

std::string wrong_peer_info(const PeerInfo& peer, int rank) {
  constexpr int max_devices = 1 << 16, max_multiprocessors = 1 << 16, max_nodes = 1 << 20;
  return FieldCheck{}
      .in_range("rank", peer.rank, rank, rank)
      .in_range("device", peer.device, -1, max_devices)
      .in_range("compute capability", peer.compute_capability, 0, 10'000)
      .in_range("number of multiprocessors", peer.multiprocessors, 0, max_multiprocessors)
      .in_range("limit of blocks", peer.max_blocks, 0, INT_MAX)
      .in_range("bus id", peer.bus_id, -1, INT64_MAX)
      .in_range("NUMA node", peer.numa, -1, max_nodes)
      .flag("use of topology files", peer.looks_closely)
      .in_range("pid", peer.pid, 0, INT_MAX)
      .in_range("kinds of RDMA ports", peer.ib_kinds, 0, 3)
      .in_range("reason for no RDMA port", peer.ib_absence, 0, int(IbAbsence::disabled))
      .flag("sole use of a network plug-in", peer.net_plug_in_only)
      .in_range("reason for no network plug-in", peer.net_absence, 0,
                int(NetPlugInAbsence::not_found))
      .text("host", peer.host)
      .why();
}

std::string wrong_rank_result(const RankResult& result) {
  return FieldCheck{}
      .in_range("error code", result.code, int(Errc::ok), int(last_errc))
      .in_range("rank at fault", result.peer, -1, net::max_ranks - 1)
      .text("transport", result.transport)
      .text("error text", result.what)
      .why();
}

std::string wrong_call(const CallInfo& call, int ranks) {
  return FieldCheck{}
      .text("operation", call.what)
      .text("type", call.type)
      .text("reduction", call.redop)
      .in_range("root", call.root, -1, ranks - 1)
      .in_range("composition", call.composition, -1, INT_MAX - 1)
      .why();
}

}  // namespace ccl::detail
