#pragma once

#include <ccl/detail/base/status.hpp>
#include <ccl/detail/exec/launch_share.hpp>
#include <ccl/types/result.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "gpu/gpu.hpp"

namespace ccl::detail {

/// Owner of the multiprocessors of one GPU in this process. Counts the communicators on the GPU and
/// the blocks that their launches may hold.
///
/// A launch and the early launches that wait behind it hold at most the communicator's share.
/// Launches whose shares fit on the GPU run side by side. Of launches whose shares do not fit, the
/// one that this process began later waits for the others, so ranks with the same order of calls
/// cannot wait for each other.
///
/// A cluster needs free multiprocessors in one processing cluster of the GPU (GPC). Launches have
/// clusters only where they fit wherever the blocks of the others stand. So a launch with clusters
/// waits at most for those without, which wait for no place.
class Residency {
  using Clock = std::chrono::steady_clock;

 public:
  /// Place of a communicator's rank on a GPU.
  struct Shape {
    int blocks = 1;         // maximum of a launch
    int ranks = 1;          // ranks of the communicator on this GPU
    int index = 0;          // of this rank among them
    bool in_order = false;  // its launches wait for those of others that do not fit beside them
    const Status* status = nullptr;  // its failure ends such a wait; outlives the member
    double limit_s = 0;              // of such a wait for another thread; 0: no limit
    int cluster = 1;                 // blocks of a thread block cluster; 1: there are none
  };
  /// One communicator. All members without a comment belong to `Residency`, under its lock.
  struct Member {
    std::shared_ptr<Gpu> gpu;
    Shape shape;
    CUevent ended = nullptr;             // its last launch has ended
    std::shared_ptr<void> owns_ended{};  // also held by who waits for it
    LaunchShare share;                   // used by the launching thread, between `begin` and `end`
    int held = 0;  // most blocks that its launches in flight, and graphs, hold
    // Written under the lock, and read without it: number of its last launch; 0: none
    std::atomic<std::uint64_t> last{0};
    bool graphs = false;  // launches were captured: their replays are not visible
    std::map<cuuint64_t, std::vector<CUgraphNode>> ends;  // of the last launch in each capture
    std::thread::id thread{};                             // of the launch
    std::atomic<bool> launching{false};        // between `begin` and `end`, which does not lock
    std::atomic<int> queued{0};                // blocks of the last launch and those it overlaps
    std::vector<std::shared_ptr<Gpu>> levels;  // hold the wait records of its levels

    int cost() const { return held * shape.ranks; }
  };
  /// Waits of a launch. Holds the lock from `begin` on.
  struct LaunchWaits {
    std::unique_lock<std::mutex> lock;
    std::vector<const Member*> inside;   // wait for what they have in the same capture
    std::vector<const Member*> outside;  // wait for `Member::ended`
  };
  /// Launches in flight with more blocks than the GPU has multiprocessors.
  struct Shortage {
    int communicators = 0, blocks = 0, multiprocessors = 0;
  };

  /// Returns the owner for a GPU in this process. A forked child gets another one.
  static std::shared_ptr<Residency> of(const Gpu& gpu);
  explicit Residency(int multiprocessors) : multiprocessors_{multiprocessors} {}

  /// Adds a communicator. `ended` is its event, and `owner` keeps that.
  std::shared_ptr<Member> join(std::shared_ptr<Gpu> gpu, const Shape& shape, CUevent ended,
                               std::shared_ptr<void> owner = {});
  void leave(const Member& member);
  /// Counts the launches of a level as those of `member`. `gpu` has the level's wait record.
  void add_level(Member& member, std::shared_ptr<Gpu> gpu);

  /// Begins a launch: sets the share of `mine` and lists the launches that it must wait for.
  /// Blocks while another thread makes one of those, at most for the limit of `mine`. `capture`:
  /// number of the stream's capture, or 0. `idle()` returns true if no launch of `mine` is in
  /// flight and no graph can start one. After a failure the launch must be ended, too.
  template <class Idle>
  Result<void> begin(Member& mine, cuuint64_t capture, Idle idle, LaunchWaits& waits);
  /// Keeps the last nodes of a launch in a capture.
  void captured(Member& mine, cuuint64_t capture, std::vector<CUgraphNode> ends);
  /// Ends a launch, after its event was recorded. Also ends one that failed, or did not begin.
  void end(Member& mine);
  /// Drops what is known of captures for which `gone(number)` is true.
  template <class Gone>
  void forget(Member& mine, Gone gone);

  /// Returns the launches in flight if their blocks may not all have a place: they are more than
  /// the multiprocessors, and not all launches wait for others that do not fit beside them.
  ///
  /// Reads words in host memory only and waits for no launch, because CUDA may block behind the
  /// launches that are stuck. A launch is in flight if its lanes wait for a peer. A later one of
  /// another communicator is, too, if its blocks do not fit beside those.
  std::optional<Shortage> shortage();

 private:
  static bool is_idle(const Member& member);
  static bool waits_for_peer(const Member& member);
  int fair_share(const Member& mine) const;
  bool clusters_fit(const Member& mine) const;
  void reclaim_idle(const Member& mine);
  bool fits(const Member& mine) const;
  std::vector<const Member*> too_many(const Member& mine, cuuint64_t capture) const;
  void list_waits(const Member& mine, cuuint64_t capture, LaunchWaits& waits) const;
  bool others_launch(const LaunchWaits& waits) const;
  Result<void> await_others(const Member& mine, Clock::time_point since, LaunchWaits& waits);

  const int multiprocessors_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::atomic<int> waiting_{0};   // threads in `begin`
  std::vector<Member*> members_;  // guarded by both locks: changed with both, read with either
  std::mutex list_mutex_;         // held for moments, by no thread in a call of CUDA
  std::uint64_t launches_ = 0;
};

template <class Idle>
Result<void> Residency::begin(Member& mine, cuuint64_t capture, Idle idle, LaunchWaits& waits) {
  waits.lock = std::unique_lock{mutex_};
  reclaim_idle(mine);
  mine.share.blocks = fair_share(mine);
  const int holds = std::clamp(mine.share.blocks, mine.shape.blocks, multiprocessors_);
  // Launches in flight may hold what a larger share allowed.
  if (holds > mine.held || (holds < mine.held && idle())) mine.held = holds;
  mine.share.cluster = clusters_fit(mine) ? mine.shape.cluster : 1;
  if (mine.shape.in_order) {
    const auto since = Clock::now();
    for (list_waits(mine, capture, waits); others_launch(waits); list_waits(mine, capture, waits)) {
      CCL_CHECK(await_others(mine, since, waits));
    }
  }
  mine.last = ++launches_;
  mine.thread = std::this_thread::get_id();
  mine.launching = true;
  return {};
}

template <class Gone>
void Residency::forget(Member& mine, Gone gone) {
  const std::lock_guard lock{mutex_};
  std::erase_if(mine.ends, [&](const auto& capture) { return gone(capture.first); });
  mine.graphs = !mine.ends.empty();
}

}  // namespace ccl::detail
