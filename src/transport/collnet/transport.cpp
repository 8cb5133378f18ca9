#include <ccl/transport/collnet.hpp>

#include <fmt/format.h>

namespace ccl {

Result<void> CollNetTransport::can_connect(const PeerInfo& from, const PeerInfo& to) {
  if (from.host_hash == to.host_hash) return AnyOf::can_connect(from, to);
  return fail(Errc::no_transport,
              fmt::format("{} only reduces between hosts (rank {} is on {}, rank {} on {}); use "
                          "CollNetChain or CollNetDirect, or DefaultTransport",
                          name, from.rank, from.host, to.rank, to.host));
}

EdgeTransport CollNetTransport::edge_transport(const PeerInfo& from, const PeerInfo& to) {
  if (from.host_hash == to.host_hash) return AnyOf::edge_transport(from, to);
  return {name, Medium::network, 128};
}

Result<CollNetTransport::End> CollNetTransport::setup(TransportContext& context, const Edge& edge) {
  CCL_CHECK(can_connect(edge.side == EdgeSide::sender ? edge.self : edge.peer,
                        edge.side == EdgeSide::sender ? edge.peer : edge.self));
  return AnyOf::setup(context, edge);
}

}  // namespace ccl
