#pragma once

// Ranks of one process that compare their calls, and checks whose failures are results.
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/loopback.hpp>

#include <string>

#include "support/loopback_ranks.hpp"

namespace ccl::test {

/// Composition whose wires are memory of this process.
template <class Op, class Algo>
using Over = Collective<Op, Algo, Simple, LoopbackTransport>;

/// Configuration of ranks that compare their calls.
inline Config checking() {
  Config config;
  config.timeout_s = 60;
  config.check = true;
  return config;
}
/// Returns an error with the text `what` unless `good`.
inline Result<void> expect(bool good, const std::string& what) {
  return good ? Result<void>{} : fail(Errc::internal, what);
}

}  // namespace ccl::test
