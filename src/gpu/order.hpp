#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/gpu.hpp"

namespace ccl::detail {

/// Keeps the launches of one communicator in order, whatever streams they are on: they share wires,
/// and two that ran at once might each hold multiprocessors that the other's peers wait for.
///
/// A call of several launches, on the communicator and on its levels, is one turn: those within it,
/// on the same thread and stream, follow each other.
///
/// Launches on one stream are in order by themselves. Every launch records an event, for which one
/// on another stream waits. It is recorded at once, not when the other stream comes, since the user
/// may have destroyed the first by then; a new one may even have its handle, so streams are told
/// apart by CUDA's numbers. A captured graph waits for that event when its replay begins, and
/// records it when its last collective has ended, on a branch of its own, so that collectives of a
/// graph follow each other as closely as they can. Replays are not seen here: from the first
/// capture on, every launch outside a graph waits.
class GpuOrder {
 public:
  explicit GpuOrder(std::shared_ptr<Gpu> gpu) : gpu_{std::move(gpu)} {}
  ~GpuOrder();
  GpuOrder(const GpuOrder&) = delete;
  GpuOrder& operator=(const GpuOrder&) = delete;

  /// Around each launch, and around the launches of a call, on the thread that launches; the lock
  /// is held in between.
  Result<void> before(CUstream stream, const std::shared_ptr<void>& keep);
  Result<void> after(CUstream stream);
  void give_up();  // instead of `after`: nothing was launched

  /// What launches may still use: let go of once they have ended. Never blocks, and leaves other
  /// streams alone: an event of the whole context would end whatever capture a thread is in. A
  /// graph keeps what its replays use.
  void retire(std::shared_ptr<void> used);
  /// Whether all launches have ended. Any thread.
  bool idle();
  /// For the end: waits for this communicator's launches, and for no other kernel.
  void drain();

 private:
  struct Retired {
    CUevent event;  // of the next launch outside graphs, which comes after those that may use it
    std::shared_ptr<void> used;
  };
  /// What was launched into one graph that is being captured, or was. Several may be at once, of
  /// several threads or streams.
  struct Capture {
    std::weak_ptr<void> alive;  // what the graph and its executables hold
    CUgraph graph = nullptr;
    CUstream last = nullptr;        // of its last launch
    CUgraphNode ended = nullptr;    // records `turn_`
    std::vector<CUgraphNode> ends;  // what `ended` depends on
    std::vector<void*> kept;        // by the graph
  };
  Result<void> enter(CUstream stream, const std::shared_ptr<void>& keep);
  Result<void> leave(CUstream stream);
  Result<void> enter_graph(CUstream stream);
  Result<void> tie(const std::shared_ptr<void>& keep);
  Result<void> make_event();
  void mark_retired(CUstream stream);
  Result<unsigned long long> number_of(CUstream stream) const;
  static constexpr unsigned long long legacy = ~0ULL;

  std::shared_ptr<Gpu> gpu_;
  std::recursive_mutex mutex_;
  int depth_ = 0;                             // of `before`s that have no `after` yet
  CUevent turn_ = nullptr;                    // the last launch has ended
  unsigned long long number_ = 0, last_ = 0;  // of the streams of this launch and of the one before
  bool launched_ = false, graphs_ = false;
  std::map<cuuint64_t, Capture> captures_;  // by CUDA's number, until their graphs have gone
  Capture* capture_ = nullptr;              // between `before` and `after`: of this launch
  std::mutex retired_mutex_;  // of these and of `turn_`: who retires may hold what a launch wants
  std::vector<Retired> retired_;
  std::atomic<bool> unmarked_{false};  // some of these have no event yet
};

/// Lets go of what destroyed graphs have kept: their destruction may come at a time when the driver
/// takes no calls.
void bury();

}  // namespace ccl::detail
