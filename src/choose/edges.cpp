#include "choose/edges.hpp"

#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/transport/any_of.hpp>
#include <ccl/transport/ib.hpp>
#include <ccl/transport/nvls.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "gpu/multicast.hpp"

namespace ccl::detail {
namespace {

Path path_of(bool gpu, const EdgeTransport& by) {
  switch (by.medium) {
    case Medium::gpu_memory:
      return !gpu ? Path::shm : by.line_bytes >= 128 ? Path::nvlink : Path::pcie;
    case Medium::host_memory:
      return gpu ? Path::gpu_host : Path::shm;
    case Medium::network:
      break;
  }
  return gpu ? Path::gpu_net : Path::net;
}

bool is_rdma(const EdgeTransport& by) {
  return std::string_view{by.transport} == IbTransport::name;
}

}  // namespace

Edges look_at(const CommState& state, const TransportTable& by) {
  const Path best = state.device.gpu ? Path::nvlink : Path::shm;
  Edges edges{&by, best, best, 128, true, {}};
  const PeerInfo& me = state.identity.peers()[std::size_t(state.identity.rank())];
  for (const PeerInfo& peer : state.identity.peers()) {
    if (peer.rank == me.rank) continue;
    for (const auto& [from, to] : {std::pair{me, peer}, std::pair{peer, me}}) {
      if (auto can = by.can_connect(from, to); !can && edges.refusal.empty()) {
        edges.refusal = can.error().what;
      }
      const EdgeTransport edge_transport = by.edge_transport(from, to);
      Path path = path_of(state.device.gpu != nullptr, edge_transport);
      // Lines are not proven to land whole between the hosts of an NVLink domain.
      const bool joined =
          edge_transport.medium == Medium::gpu_memory && peer.host_hash != me.host_hash;
      if (joined) path = Path::nvlink;
      edges.path = std::max(edges.path, path);
      if (peer.host_hash == me.host_hash) edges.inner_path = std::max(edges.inner_path, path);
      edges.line_bytes = std::min(edges.line_bytes, edge_transport.line_bytes);
      const bool by_network = edge_transport.medium == Medium::network;
      edges.rdma = edges.rdma && (!by_network || is_rdma(edge_transport));
    }
  }
  return edges;
}

std::string no_peers(const CommState& state, bool of_host) {
  if (!state.device.gpu) return "CPU ranks do not address each other's memory";
  if (auto may = may_choose(P2pTransport::name); !may) return may.error().what;
  const PeerInfo& me = state.identity.peers()[std::size_t(state.identity.rank())];
  for (const PeerInfo& peer : state.identity.peers()) {
    if (peer.rank == me.rank || (of_host && peer.host_hash != me.host_hash)) continue;
    const auto can =
        P2pTransport::can_address(me.rank < peer.rank ? me : peer, me.rank < peer.rank ? peer : me);
    if (!can) return can.error().what;
  }
  return {};
}

std::string short_peer_lines(const CommState& state, int line_bytes, bool of_host) {
  const PeerInfo& me = state.identity.peers()[std::size_t(state.identity.rank())];
  for (const PeerInfo& peer : state.identity.peers()) {
    if (peer.rank == me.rank || (of_host && peer.host_hash != me.host_hash)) continue;
    const int whole = P2pTransport::edge_transport(me, peer).line_bytes;
    if (whole >= line_bytes) continue;
    return fmt::format(
        "it needs lines of {} bytes that land whole, and p2p from rank {} to rank {} "
        "has {}",
        line_bytes, me.rank, peer.rank, whole);
  }
  return {};
}

std::string no_multicast(const CommState& state, const CandidateFacts& one, bool of_host) {
  const MulticastKind kind = one.multicast;
  if (one.by_switches_alone && kind != MulticastKind::switches) {
    return "its transport emulates multicast, and it is for switches";
  }
  if (auto may = may_choose(NvlsTransport::name); !may) return may.error().what;
  if (state.device.gpu && kind == MulticastKind::switches) {
    if (auto can = MulticastBlock::check(state.device.gpu); !can) return can.error().what;
    if (!program_has_switch_code) return "the program does not include <ccl/nvls.cuh>";
  }
  const PeerInfo& me = state.identity.peers()[std::size_t(state.identity.rank())];
  for (const PeerInfo& peer : state.identity.peers()) {
    if (peer.rank == me.rank || (of_host && peer.host_hash != me.host_hash)) continue;
    if (auto can = can_multicast(kind, me, peer); !can) return can.error().what;
  }
  return {};
}

std::string no_levels(const CommState& state, const CandidateFacts& one, const HostShape& shape) {
  if (shape.hosts == 1) return "all ranks are on one host";
  if (shape.hosts == state.identity.ranks()) return "each rank is alone on its host";
  if (one.by_rail && !shape.even) return "hosts have different numbers of ranks";
  if (one.by_rank && !shape.regular) return "ranks are not numbered host by host";
  const int locals = state.identity.ranks() / shape.hosts;  // of one host, if hosts are even
  for (int s = 0; s < one.step_count; ++s) {
    const LevelStep& step = one.steps[std::size_t(s)];
    const int ranks = step.outer ? shape.hosts : shape.even ? locals : 0;
    if (step.takes_ranks != nullptr && !step.takes_ranks(ranks)) {
      return fmt::format("one of its levels is not for {} ranks", ranks);
    }
    if (step.mover == Mover::wires) continue;
    if (step.outer) return "its outer level goes over wires";
    if (step.mover == Mover::switches) {
      if (auto why = no_multicast(state, one, true); !why.empty()) return why;
      continue;
    }
    if (auto why = no_peers(state, true); !why.empty()) return why;
    if (auto why = short_peer_lines(state, step.line_bytes, true); !why.empty()) return why;
  }
  return {};
}

}  // namespace ccl::detail
