#include <ccl/detail/runtime/transport_table.hpp>
#include <ccl/transport/any_of.hpp>

namespace ccl::detail {

namespace {
constexpr TransportTable made = make_connector<DefaultTransport>();
}

Result<void> DefaultTransportTable::can_connect(const PeerInfo& sender, const PeerInfo& receiver) {
  return made.can_connect(sender, receiver);
}
EdgeTransport DefaultTransportTable::edge_transport(const PeerInfo& sender,
                                                    const PeerInfo& receiver) {
  return made.edge_transport(sender, receiver);
}
Result<std::unique_ptr<AnyEnd>> DefaultTransportTable::setup(TransportContext& context,
                                                             const Edge& edge) {
  return made.setup(context, edge);
}

}  // namespace ccl::detail
