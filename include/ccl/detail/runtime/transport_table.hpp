#pragma once

#include <ccl/detail/transport/any_end.hpp>
#include <ccl/transport/transport.hpp>

#include <memory>

namespace ccl::detail {

/// A transport policy as values, for the compiled runtime.
struct TransportTable {
  const char* name;
  bool proxied;
  Result<void> (*can_connect)(const PeerInfo& sender, const PeerInfo& receiver);
  EdgeTransport (*edge_transport)(const PeerInfo& sender, const PeerInfo& receiver);
  Result<std::unique_ptr<AnyEnd>> (*setup)(TransportContext& context, const Edge& edge);
};
template <Transport T>
constexpr TransportTable make_connector() {
  return {T::name, T::proxied,
          [](const PeerInfo& sender, const PeerInfo& receiver) {
            return T::can_connect(sender, receiver);
          },
          [](const PeerInfo& sender, const PeerInfo& receiver) {
            return detail::edge_transport<T>(sender, receiver);
          },
          [](TransportContext& context, const Edge& edge) -> Result<std::unique_ptr<AnyEnd>> {
            CCL_TRY(auto end, T::setup(context, edge));
            return std::make_unique<EndOf<typename T::End>>(std::move(end));
          }};
}
/// Table of `DefaultTransport`, compiled once in the runtime because most programs use it.
struct DefaultTransportTable {
  static Result<void> can_connect(const PeerInfo& sender, const PeerInfo& receiver);
  static EdgeTransport edge_transport(const PeerInfo& sender, const PeerInfo& receiver);
  static Result<std::unique_ptr<AnyEnd>> setup(TransportContext& context, const Edge& edge);
};
template <Transport T>
constexpr TransportTable transport_table() {
  if constexpr (requires { typename T::ForBoth; }) {
    return transport_table<typename T::ForBoth>();
  } else if constexpr (is_default<T>) {
    return {T::name, T::proxied, DefaultTransportTable::can_connect,
            DefaultTransportTable::edge_transport, DefaultTransportTable::setup};
  } else {
    return make_connector<T>();
  }
}

}  // namespace ccl::detail
