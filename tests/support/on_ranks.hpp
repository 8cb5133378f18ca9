#pragma once

// Ranks as threads of one process.
#include <ccl/comm/communicator.hpp>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"

namespace ccl::test {

using RankBody = std::function<Result<void>(const Communicator&)>;

/// Returns the results of `body` on one thread for each rank.
inline std::vector<Result<void>> on_ranks(const std::vector<Communicator>& comms,
                                          const RankBody& body) {
  std::vector<Result<void>> results(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] { results[r] = body(comms[r]); });
  }
  for (auto& thread : threads) thread.join();
  return results;
}
/// Returns the results of `body` on CPU ranks that it creates.
inline std::vector<Result<void>> on_ranks(int ranks, Config config, const RankBody& body) {
  config.device = Config::cpu;
  const auto comms = Communicator::create_all(ranks, config);
  INFO((comms ? std::string{} : comms.error().message()));
  REQUIRE(comms.has_value());
  return on_ranks(*comms, body);
}
inline void check_well(const std::vector<Result<void>>& results) {
  for (const auto& result : results) {
    INFO((result ? std::string{} : result.error().message()));
    CHECK(result.has_value());
  }
}
/// Message of the first error, or nothing.
inline std::string first_problem(const std::vector<Result<void>>& results) {
  for (const auto& result : results) {
    if (!result) return result.error().message();
  }
  return {};
}
/// All must succeed, or the test ends.
inline void on_all(const std::vector<Communicator>& comms, const RankBody& body) {
  const auto results = on_ranks(comms, body);
  check_well(results);
  for (const auto& result : results) REQUIRE(result.has_value());
}

}  // namespace ccl::test
