#pragma once

#include <ccl/detail/base/status.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/transport/transport.hpp>

#include <cstddef>

namespace ccl::test {

/// Resources that a communicator lends its transports. The engine outlives the context, because it
/// finishes posted steps.
struct Lent {
  detail::Status status;
  detail::ProxyEngine proxy{&status};
  TransportContext context;
  Lent() {
    context.status = &status;
    context.proxy = &proxy;
    context.secret[5] = std::byte{7};
    context.deadline_s = 20;
  }
};

}  // namespace ccl::test
