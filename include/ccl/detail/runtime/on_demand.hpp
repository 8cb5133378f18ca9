#pragma once

#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/types/word.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace ccl::detail {

class Connections;

/// Connects wires between pairs of ranks while a call runs. A thread connects to the peers in the
/// order in which they arrive, and lanes use each wire as soon as it exists. Only the two ends of a
/// wire take part; an error fails the communicator.
class OnDemandConnect {
 public:
  struct Edge;
  struct Steps;

  /// Begins to connect these wires, given as pairs of sender and receiver. `connections` must
  /// outlive this and be locked.
  OnDemandConnect(Connections& connections, const std::vector<std::pair<int, int>>& edges);
  ~OnDemandConnect();
  OnDemandConnect(const OnDemandConnect&) = delete;
  OnDemandConnect& operator=(const OnDemandConnect&) = delete;

  /// Flags by peer, for lanes: not 0 if the wire from it, or to it, exists (acquire).
  const Word* wire_ready(bool to) const { return there_[to].data(); }
  /// Lets the lanes of this thread sleep instead of polling for missing wires, while it lives.
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
  /// Waits, after the lanes end, until the other ends are connected. Returns at once if a wire is
  /// missing, because the lanes have then failed.
  void finish();

 private:
  struct Progress;  // of the connecting thread
  void run();

  Connections& connections_;
  std::vector<Edge> edges_;
  std::vector<Word> there_[2];
  std::unique_ptr<Progress> progress_;
};

}  // namespace ccl::detail
