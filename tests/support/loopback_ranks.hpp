#pragma once

// Ranks of one process, and the results of their calls.
#include "support/chosen_transport.hpp"

namespace ccl::test {

inline std::vector<Communicator> make(int ranks, Config config = {}) {
  if (!config.timeout_s) config.timeout_s = 60;
  auto comms = Communicator::create_all(ranks, config);
  INFO((comms ? std::string{} : comms.error().message()));
  REQUIRE(comms.has_value());
  return *std::move(comms);
}
inline Errc code(const Result<void>& result) {
  return result ? Errc::ok : result.error().code;
}

}  // namespace ccl::test
