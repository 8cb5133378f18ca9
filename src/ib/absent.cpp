// Built where rdma-core's headers are missing, instead of everything else in this folder.
#include <ccl/topo/discover.hpp>
#include <ccl/transport/ib.hpp>

#include "ib/presence.hpp"
#include "transport/wire_memory.hpp"

namespace ccl {
namespace detail {

struct IbEnd {};

Result<IbPresence> ib_presence() {
  return IbPresence{0, IbAbsence::not_built};
}

}  // namespace detail

Result<IbTransport::End> IbTransport::setup(TransportContext&, const Edge& edge) {
  return fail(detail::edge_error(edge, name, Errc::not_supported,
                                 "ccl was built without rdma-core (its headers were missing); "
                                 "install libibverbs-dev and build again"));
}

Handshake IbTransport::End::handshake() const {
  return {};
}

Result<Connection> IbTransport::End::connect(const Handshake&) {
  return fail(Errc::not_supported, "ccl was built without rdma-core");
}

namespace topo {
Result<SeenNics> verbs_nics() {
  SeenNics none;
  none.asked = false;
  none.why = "ccl was built without rdma-core";
  return none;
}
}  // namespace topo

}  // namespace ccl
