#pragma once

// Communicators of ranks that are threads of this process, each on a played GPU.
#include <ccl/comm/communicator.hpp>

#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "support/catch.hpp"
#include "support/gpu_ranks.hpp"
#include "support/played/played_gpus.hpp"

namespace ccl::test::played {

using Ranks = std::vector<Result<Communicator>>;

/// One rank, as a thread of its own sees it.
struct Rank {
  int rank = 0, ranks = 1;
  Communicator& comm;
  CUstream stream = nullptr;  // of its GPU, which is current

  /// Waits for all that is queued on the stream.
  void synchronize() const { (void)(*detail::cuda_driver())->stream_synchronize(stream); }
};

/// Number of the host that a rank was created on; -1: the host of the test.
inline int host_of(const Communicator& comm) {
  int host = -1;
  const char* const name =
      detail::Access::state(comm)->identity.peers()[std::size_t(comm.rank())].host;
  return std::sscanf(name, "played-%d", &host) == 1 ? host : -1;
}

/// Runs `f(rank)` for each of `comms`, on a thread of each; it returns a problem, or an empty text.
/// Returns the problems, in order of ranks.
inline std::vector<std::string> problems_on(std::vector<Result<Communicator>>& comms,
                                            const std::function<std::string(const Rank&)>& f) {
  std::vector<std::string> problems(comms.size(), "did not run");
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      if (!comms[r]) {
        problems[r] = comms[r].error().message();
        return;
      }
      host_of_thread = host_of(*comms[r]);  // for communicators that `f` creates
      const detail::CudaDriver& cuda = **detail::cuda_driver();
      (void)cudaSetDevice(comms[r]->device());
      Rank rank{comms[r]->rank(), comms[r]->ranks(), *comms[r]};
      (void)cuda.stream_create(&rank.stream, CU_STREAM_NON_BLOCKING);
      problems[r] = f(rank);
      if (problems[r].empty()) rank.synchronize();
      (void)cuda.stream_destroy(rank.stream);
    });
  }
  for (auto& thread : threads) thread.join();
  return problems;
}

/// As `problems_on`, and checks that there are none.
inline void on_each(std::vector<Result<Communicator>>& comms,
                    const std::function<std::string(const Rank&)>& f) {
  const auto problems = problems_on(comms, f);
  for (std::size_t r = 0; r < problems.size(); ++r) {
    INFO("rank " << r << ": " << problems[r]);
    CHECK(problems[r].empty());
  }
}

/// Those of `ranks` ranks that are in `here`, rank r on device r and on host `host_of(r)`; -1: the
/// host of the test.
template <class HostOf>
std::vector<Result<Communicator>> create_some(const UniqueId& id, const std::vector<int>& here,
                                              int ranks, HostOf host_of) {
  std::vector<Result<Communicator>> comms(here.size(), fail(Errc::internal, "not made"));
  std::vector<std::thread> threads;
  for (std::size_t n = 0; n < here.size(); ++n) {
    threads.emplace_back([&, n] {
      host_of_thread = host_of(here[n]);
      Config config;
      config.device = here[n];
      config.init_timeout_s = 300;  // many ranks share the cores of the machine
      comms[n] = Communicator::create(id, here[n], ranks, config);
    });
  }
  for (auto& thread : threads) thread.join();
  return comms;
}

/// Rank r on device r and on host `host_of(r)`; -1: the host of the test.
template <class HostOf>
std::vector<Result<Communicator>> create_ranks(int ranks, HostOf host_of) {
  const auto id = create_unique_id();
  REQUIRE(id);
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  return create_some(*id, all, ranks, host_of);
}

/// Rank r on device r. `per_host`: GPUs of a host; 0: all are on one.
inline std::vector<Result<Communicator>> create_ranks(int ranks, int per_host = 0) {
  return create_ranks(ranks, [=](int rank) { return per_host > 0 ? rank / per_host : -1; });
}

/// The text of a failure; empty if there is none.
template <class T>
std::string failure_of(const Result<T>& result) {
  return result ? std::string{} : result.error().message();
}

}  // namespace ccl::test::played
