#pragma once

#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/types/word.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace ccl::detail {

class Connections;

/// Wires between pairs of ranks that come to be while a call is under way: a thread of its own
/// meets the peers, in whatever order they come, and lanes use each wire from when it is there.
/// Nobody but the two ends of a wire has a part in it. An error fails the communicator.
class OnDemandConnect {
 public:
  struct Edge;

  /// Of these wires, as pairs of sender and receiver. `connections` outlives it, and is locked
  /// meanwhile.
  OnDemandConnect(Connections& connections, const std::vector<std::pair<int, int>>& edges);
  ~OnDemandConnect();
  OnDemandConnect(const OnDemandConnect&) = delete;
  OnDemandConnect& operator=(const OnDemandConnect&) = delete;

  /// By peer: not 0 where the wire from it, or to it, is there (acquire). For lanes.
  const Word* wire_ready(bool to) const { return there_[to].data(); }
  /// Lanes of this thread, while it lives, sleep where they would poll for wires that are missing.
  class IdleScope {
   public:
    explicit IdleScope(OnDemandConnect& opening) : opening_{opening}, before_{idle_hook} {
      idle_hook = {[](void* context) { return static_cast<IdleScope*>(context)->idle(); }, this};
    }
    ~IdleScope() { idle_hook = before_; }
    IdleScope(const IdleScope&) = delete;
    IdleScope& operator=(const IdleScope&) = delete;

   private:
    bool idle();
    OnDemandConnect& opening_;
    IdleHook before_;
  };
  /// After the lanes: until the other ends have made theirs, too. Where wires are missing, the
  /// lanes have given up, and so does this.
  void finish();

 private:
  void run();

  Connections& connections_;
  std::vector<Edge> edges_;
  std::vector<Word> there_[2];
  std::atomic<bool> stop_{false};
  std::atomic<int> missing_{0};
  std::mutex mutex_;  // of `more_`
  std::condition_variable more_;
  std::thread thread_;
};

}  // namespace ccl::detail
