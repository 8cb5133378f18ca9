#include <ccl/detail/compose/composition.hpp>

namespace ccl::detail {

template Result<void> launch_call(const std::shared_ptr<Connections>&, const CallInfo&,
                                  const CallArguments<Bytes>&, Stream, const CallPaths<Bytes>&);
template Result<void> run_alone(const std::shared_ptr<Connections>&, const Bytes&, const void*,
                                void*, Index, Stream);
template Result<void> launch_on_device(const std::shared_ptr<Connections>&, const CallInfo&,
                                       const WireParts<Bytes>&, const CallArguments<Bytes>&,
                                       Stream);
template Result<void> launch_over_peers(
    const std::shared_ptr<Connections>&, const CallInfo&, const CallArguments<Bytes>&, Stream,
    int (*)(const PeerWork<Bytes>&, const DeviceTarget&), Index (*)(const PeerWork<Bytes>&),
    PeerWork<Bytes> (*)(const Connections&, const CallArguments<Bytes>&));
template class AnyWireCall<Bytes>;

}  // namespace ccl::detail
