#pragma once

#include <ccl/bootstrap.hpp>
#include <ccl/communicator.hpp>
#include <ccl/journal.hpp>
#include <ccl/proxy.hpp>
#include <ccl/status.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace ccl::detail {

class Links;

/// What all handles of one rank's membership share.
struct CommState {
  CommState(int my_rank, int rank_count, Config how)
      : rank{my_rank}, ranks{rank_count}, config{std::move(how)} {}
  ~CommState();
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;

  int rank, ranks;
  Config config;
  Status status;
  std::vector<PeerInfo> peers;           // one for each rank
  std::unique_ptr<Bootstrap> bootstrap;  // null in a communicator of one rank
  std::mutex bootstrap_mutex;            // one thread at a time
  ProxyEngine proxy;
  bool check = false;
  double timeout_s = 0, init_timeout_s = 60;
  Index budget = 0;
  std::atomic<Index> used{0};
  std::atomic<int> compositions{0};
  std::unique_ptr<Journal> journal;  // null in a communicator of one rank
  std::mutex links_mutex;            // of `links`: those that live, for diagnosis
  std::vector<Links*> links;
  std::atomic<bool> finalized{false};

  // Asynchronous creation.
  std::atomic<bool> creating{false};
  std::mutex creation_mutex;
  std::condition_variable created;

  /// An error of this rank: says who and where.
  Error blame(Error error) const;
  /// The first failure, with this rank named; or in_progress, or misuse after finalize.
  Result<void> ready() const;
  /// Fails this communicator here and tells the others.
  void fail_all(Error error);
};

}  // namespace ccl::detail
