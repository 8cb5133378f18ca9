#pragma once

// Communicators of ranks that are threads of this process, each on a GPU of `FakeGpus`.
#include <ccl/comm/communicator.hpp>
#include <ccl/transport/any_of.hpp>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "error_matchers.hpp"
#include "fake_gpus.hpp"
#include "transport/p2p/check.hpp"

namespace ccl::test {

/// A process remembers what it has found: each case takes GPUs of its own.
inline FakeGpus& gpus(int devices = FakeGpus::usual) {
  return FakeGpus::install(devices);
}

/// Creates the ranks from `first` on of `ranks` ranks, one on each of `devices`, on a thread each.
inline std::vector<Result<Communicator>> create(const UniqueId& id, int first, int ranks,
                                                const std::vector<int>& devices) {
  std::vector<Result<Communicator>> all(devices.size(), fail(Errc::internal, "not created"));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    threads.emplace_back([&, r] {
      Config config;
      config.device = devices[r];
      all[r] = Communicator::create(id, first + int(r), ranks, config);
    });
  }
  for (auto& thread : threads) thread.join();
  return all;
}

/// Rank r on the r-th of `devices`.
inline std::vector<Result<Communicator>> create(const std::vector<int>& devices) {
  const auto id = create_unique_id();
  REQUIRE(id);
  return create(*id, 0, int(devices.size()), devices);
}

inline detail::PathFault fault(const Result<Communicator>& comm, int peer) {
  INFO((comm ? std::string{} : comm.error().message()));
  REQUIRE(comm);
  return detail::PathFault(comm->peer(peer).way.fault);
}
inline Result<void> address(const Result<Communicator>& comm, int peer) {
  const int me = comm->rank();
  return P2pTransport::can_address(comm->peer(std::min(me, peer)), comm->peer(std::max(me, peer)));
}
inline std::string carried_by(const Result<Communicator>& comm, int peer) {
  return DefaultTransport::edge_transport(comm->peer(comm->rank()), comm->peer(peer)).transport;
}

}  // namespace ccl::test
