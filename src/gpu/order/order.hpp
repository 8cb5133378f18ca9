#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "gpu/gpu.hpp"
#include "gpu/order/residency.hpp"

namespace ccl::detail {

/// Keeps the launches of one communicator in order on all streams. Two launches share wires, and at
/// once each might hold multiprocessors that the other's peers wait for.
///
/// A call of several launches, on the communicator and its levels, is one turn. The launches of a
/// turn are on one thread and stream, so they follow each other.
///
/// Launches on one stream are in order by themselves. Every launch records an event at once, and a
/// launch on another stream waits for it. The event cannot be recorded later, because the user may
/// have destroyed the stream by then. A new stream may even have its handle, so streams are
/// compared by CUDA's numbers.
///
/// A captured graph waits for that event when its replay begins. It records the event when its last
/// collective has ended, on a branch of its own, so collectives of a graph follow each other
/// closely. Replays are not visible here: while a captured graph exists, every launch outside a
/// graph waits.
///
/// Launches of other communicators on the GPU run beside these, as `Residency` says.
///
/// A default stream is that of the communicator's GPU, whatever device the thread is at.
class GpuOrder {
 public:
  explicit GpuOrder(std::shared_ptr<Gpu> gpu)
      : gpu_{std::move(gpu)}, residency_{Residency::of(*gpu_)} {}
  ~GpuOrder();
  GpuOrder(const GpuOrder&) = delete;
  GpuOrder& operator=(const GpuOrder&) = delete;

  /// Takes a place among the communicators on the GPU. Without one, no launch begins early.
  Result<void> join(const Residency::Shape& shape);
  /// Makes the launches part of those of `leader`, whose turns surround them. It outlives them.
  void follow(GpuOrder& leader);
  /// Returns the blocks that launches may hold, between `before` and `after`; null: none early.
  LaunchShare* share();
  /// Returns the launches on the GPU, of all communicators, if their blocks do not all fit. Any
  /// thread.
  std::optional<Residency::Shortage> shortage() const;

  /// Surround each launch, and all launches of a call, on the launching thread. The lock is held in
  /// between.
  template <class T>
  Result<void> before(CUstream stream, const std::shared_ptr<T>& keep) {
    return before(stream, {&keep, [](const void* of) -> std::shared_ptr<void> {
                             return *static_cast<const std::shared_ptr<T>*>(of);
                           }});
  }
  Result<void> before(CUstream stream, std::nullptr_t) {
    return before(stream, std::shared_ptr<void>{});
  }
  Result<void> after(CUstream stream);
  void give_up();  // instead of `after` if nothing was launched
  /// True between `before` and `after` of a launch into a graph. The launching thread calls it.
  bool is_capturing() const { return capture_ != nullptr; }
  /// Returns CUDA's number of that capture; 0: there is none. The launching thread calls it.
  cuuint64_t capture() const { return capture_ != nullptr ? capture_number_ : 0; }
  /// True if the stream is being captured, even if the capture has failed. Any thread may call.
  bool captures(CUstream stream) const;

  /// Releases `used` once the launches that may use it have ended, also one that another thread is
  /// making. Never blocks, and leaves other streams alone: an event of the whole context would end
  /// a capture. A graph keeps what its replays use.
  void retire(std::shared_ptr<void> used);
  /// Releases what was retired and whose launches have ended meanwhile. Returns true if some is
  /// left. Any thread may call.
  bool release_retired();
  /// True if a captured graph may exist, whose replays are unknown to the host. Never blocks. Any
  /// thread may call.
  bool may_replay();
  /// True if all launches have ended. Any thread may call.
  bool idle();
  /// Waits for this communicator's launches, at most `limit_s` seconds. Returns false if they have
  /// not ended: they may still use what was retired. Called at the end of the communicator.
  bool drain(double limit_s);

 private:
  /// Pointer that a graph holds. It is copied only for a graph.
  struct Keep {
    const void* of;
    std::shared_ptr<void> (*copy)(const void* of);
    std::shared_ptr<void> get() const { return copy(of); }
  };
  struct Retired {
    CUevent event;  // of the next launch outside graphs, which follows those that may use it
    std::shared_ptr<void> used;
  };
  /// Launches into one graph that is or was captured. Several threads or streams may capture at
  /// once.
  struct Capture {
    std::weak_ptr<void> alive;  // expires with the graph and its executables
    CUgraph graph = nullptr;
    CUstream last = nullptr;        // of its last launch
    CUgraphNode ended = nullptr;    // records `turn_`
    std::vector<CUgraphNode> ends;  // dependencies of `ended`
    std::vector<void*> kept;        // by the graph
  };
  /// Ends the turn of a launch, also if an exception ends it.
  struct EndTurn {
    ~EndTurn();
    GpuOrder& order;
  };
  Result<void> before(CUstream stream, const Keep& keep);
  Result<void> enter(CUstream stream, const Keep& keep);
  Result<void> take_place(CUstream stream, cuuint64_t capture);
  void give_place_back();
  void use_context();
  void restore_context();
  bool graphs_are_gone() const;
  Result<void> leave(CUstream stream);
  /// Sets `capture_` to the record of the stream's capture. Returns the number of the capture.
  Result<cuuint64_t> note_capture(CUstream stream);
  Result<void> enter_graph(CUstream stream);
  Result<void> leave_graph(CUstream stream);
  Result<void> tie(const Keep& of);
  Result<void> tie(const std::shared_ptr<void>& keep);
  Result<void> make_event();
  Result<void> wait_for_others(CUstream stream, cuuint64_t capture, Residency::LaunchWaits waits);
  void mark_retired(CUstream stream);
  Result<unsigned long long> number_of(CUstream stream) const;
  /// Fails if the stream belongs to another GPU: CUDA would run the kernel there.
  Result<void> check_device(CUstream stream) const;
  Result<void> check_device_of(CUcontext context) const;
  /// Fails if events of the GPU's primary context cannot be recorded on the stream. CUDA may run a
  /// kernel there nevertheless, which nothing could follow.
  Result<void> check_marks(CUstream stream) const;
  /// Does the same for captured launches, by their nodes: a captured stream must not be asked.
  Result<void> check_device_of(const std::vector<CUgraphNode>& nodes) const;
  static constexpr unsigned long long legacy = ~0ULL;

  std::shared_ptr<Gpu> gpu_;
  const std::shared_ptr<Residency> residency_;
  std::shared_ptr<Residency::Member> place_;  // null before `join` and after `follow`
  std::atomic<GpuOrder*> leader_{nullptr};    // reports read it while a level is made
  std::recursive_mutex mutex_;
  int depth_ = 0;                             // calls of `before` without an `after` yet
  std::atomic<bool> launching_{false};        // there are some
  bool pushed_ = false;                       // the GPU's context, for the thread that launches
  CUevent turn_ = nullptr;                    // the last launch has ended
  std::shared_ptr<void> owns_turn_;           // and who waits for it
  unsigned long long number_ = 0, last_ = 0;  // streams of this launch and the previous one
  unsigned long long checked_ = legacy;       // stream that was last seen to be on this GPU
  bool launched_ = false;
  bool graphs_ = false;                     // a replay may be the latest launch
  std::weak_ptr<void> any_graph_;           // expires with the last of all captured graphs
  std::map<cuuint64_t, Capture> captures_;  // by CUDA's number, until their graphs are destroyed
  Capture* capture_ = nullptr;              // between `before` and `after`: of this launch
  cuuint64_t capture_number_ = 0;           // of `capture_`
  std::mutex retired_mutex_;  // for these and `turn_`: `retire` may hold locks of launches
  std::vector<Retired> retired_;
  std::atomic<bool> unmarked_{false};  // some of these have no event yet
};

}  // namespace ccl::detail
