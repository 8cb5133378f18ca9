#include <ccl/detail/runtime/connector.hpp>
#include <ccl/transport/any_of.hpp>

namespace ccl::detail {

namespace {
constexpr Connector made = make_connector<DefaultTransport>();
}

Result<void> DefaultConnector::can_connect(const PeerInfo& sender, const PeerInfo& receiver) {
  return made.can_connect(sender, receiver);
}
Carrier DefaultConnector::carrier(const PeerInfo& sender, const PeerInfo& receiver) {
  return made.carrier(sender, receiver);
}
Result<std::unique_ptr<AnyEnd>> DefaultConnector::setup(TransportContext& context,
                                                        const Edge& edge) {
  return made.setup(context, edge);
}

}  // namespace ccl::detail
