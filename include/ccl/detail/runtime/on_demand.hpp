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

class Links;

/// Wires between pairs of ranks that come to be while a call is under way: a thread of its own
/// meets the peers, in whatever order they come, and lanes use each wire from when it is there.
/// Nobody but the two ends of a wire has a part in it. An error fails the communicator.
class Opening {
 public:
  struct Edge;

  /// Of these wires, as pairs of sender and receiver. `links` outlives it, and is locked meanwhile.
  Opening(Links& links, const std::vector<std::pair<int, int>>& edges);
  ~Opening();
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;

  /// By peer: not 0 where the wire from it, or to it, is there (acquire). For lanes.
  const Word* there(bool to) const { return there_[to].data(); }
  /// Lanes of this thread, while it lives, sleep where they would poll for wires that are missing.
  class Sleeper {
   public:
    explicit Sleeper(Opening& opening) : opening_{opening}, before_{idle_hook} {
      idle_hook = {[](void* context) { return static_cast<Sleeper*>(context)->idle(); }, this};
    }
    ~Sleeper() { idle_hook = before_; }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

   private:
    bool idle();
    Opening& opening_;
    IdleHook before_;
  };
  /// After the lanes: until the other ends have made theirs, too. Where wires are missing, the
  /// lanes have given up, and so does this.
  void finish();

 private:
  void run();

  Links& links_;
  std::vector<Edge> edges_;
  std::vector<Word> there_[2];
  std::atomic<bool> stop_{false};
  std::atomic<int> missing_{0};
  std::mutex mutex_;  // of `more_`
  std::condition_variable more_;
  std::thread thread_;
};

}  // namespace ccl::detail
