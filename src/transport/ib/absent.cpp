// Replaces everything else in this folder if rdma-core's headers are missing.
#include <ccl/topo/discover.hpp>
#include <ccl/transport/ib.hpp>

#include "transport/edge_error.hpp"
#include "transport/ib/verbs/presence.hpp"

namespace ccl {
namespace detail {

struct IbLink {};
template <>
struct ProxiedBody<IbLink> {};

Result<IbPresence> ib_presence() {
  return IbPresence{0, IbAbsence::not_built};
}

Result<std::vector<IbPortName>> ib_port_names() {
  return std::vector<IbPortName>{};
}

template <>
Handshake ProxiedEnd<IbLink>::handshake() const {
  return {};
}

template <>
Result<Connection> ProxiedEnd<IbLink>::connect(const Handshake&) {
  return fail(Errc::not_supported, "ccl was built without rdma-core");
}

}  // namespace detail

Result<IbTransport::End> IbTransport::setup(TransportContext&, const Edge& edge) {
  return fail(detail::edge_error(edge, name, Errc::not_supported,
                                 "ccl was built without rdma-core (its headers were missing); "
                                 "install libibverbs-dev and build again"));
}

namespace topo {
Result<DiscoveredNics> verbs_nics() {
  DiscoveredNics none;
  none.asked = false;
  none.why = "ccl was built without rdma-core";
  return none;
}
}  // namespace topo

}  // namespace ccl
