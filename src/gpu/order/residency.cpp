#include "gpu/order/residency.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/forks.hpp"

namespace ccl::detail {
namespace {

/// Owners by device, in one process.
struct Known {
  const int process = forks_before();
  std::mutex mutex;
  std::map<int, std::weak_ptr<Residency>> by_device;

  /// Returns those of this process. A forked child leaves those of its parent alone, because their
  /// locks may be held.
  static Known& of_this_process() {
    static std::atomic<Known*> all{nullptr};
    Known* known = all.load(std::memory_order_acquire);
    while (known == nullptr || known->process != forks_before()) {
      auto made = std::make_unique<Known>();
      if (all.compare_exchange_strong(known, made.get())) known = made.release();
    }
    return *known;
  }
};

}  // namespace

std::shared_ptr<Residency> Residency::of(const Gpu& gpu) {
  Known& known = Known::of_this_process();
  const std::lock_guard lock{known.mutex};
  auto& slot = known.by_device[gpu.device()];
  auto residency = slot.lock();
  if (!residency) slot = residency = std::make_shared<Residency>(gpu.multiprocessors());
  return residency;
}

std::shared_ptr<Residency::Member> Residency::join(std::shared_ptr<Gpu> gpu, const Shape& shape,
                                                   CUevent ended, std::shared_ptr<void> owner) {
  auto member = std::make_shared<Member>();
  member->gpu = std::move(gpu);
  member->shape = shape;
  member->ended = ended;
  member->owns_ended = std::move(owner);
  member->held = shape.blocks;
  const std::scoped_lock lock{mutex_, list_mutex_};
  members_.push_back(member.get());
  return member;
}

void Residency::leave(const Member& member) {
  const std::scoped_lock lock{mutex_, list_mutex_};
  std::erase(members_, &member);
}

void Residency::add_level(Member& member, std::shared_ptr<Gpu> gpu) {
  const std::lock_guard lock{list_mutex_};
  member.levels.push_back(std::move(gpu));
}

/// True if no launch of the member is in flight, and no graph can start one.
bool Residency::is_idle(const Member& member) {
  if (member.launching || member.graphs) return false;
  const Gpu::Current current{*member.gpu};
  return member.gpu->driver().event_query(member.ended) == CUDA_SUCCESS;
}

/// Takes back what idle communicators held when there were fewer on the GPU.
void Residency::reclaim_idle(const Member& mine) {
  if (members_.size() == 1 || fits(mine)) return;
  for (Member* other : members_) {
    if (other == &mine || other->held <= other->shape.blocks) continue;
    if (is_idle(*other)) other->held = other->shape.blocks;
  }
}

/// Blocks that the launches of `mine` may hold: those of one launch, and a part of the blocks that
/// stay free beside the launches of all communicators and of one more like this. The part is at
/// most as much again: more early launches take places that are not spread over the GPU. On 2 H200
/// in plain launches, `Ring`'s all-reduce of 512 MiB takes 1613 us with four of 32 blocks and 1527
/// with two (docs/validation/performance_h200x2.md).
///
/// A communicator that is alone may hold everything if no other like it would fit. With several
/// ranks of a communicator on the GPU, no launch begins early.
int Residency::fair_share(const Member& mine) const {
  if (mine.shape.ranks > 1) return 0;
  const int blocks = mine.shape.blocks, count = int(members_.size());
  if (count == 1 && 2 * blocks > multiprocessors_) return LaunchShare::whole_gpu().blocks;
  int all = 0, others_hold = 0;
  for (const Member* member : members_) {
    all += member->shape.blocks * member->shape.ranks;
    others_hold += member == &mine ? 0 : member->cost();
  }
  const int spare = (multiprocessors_ - all - blocks * mine.shape.ranks) / count;
  const int fair = blocks + std::clamp(spare, 0, blocks);
  return std::clamp(fair, blocks, std::max(blocks, multiprocessors_ - others_hold));
}

/// True if the launches of all communicators fit, whatever places their blocks take: a GPC may have
/// one free multiprocessor less than a cluster has blocks.
bool Residency::clusters_fit(const Member& mine) const {
  const int cluster = mine.shape.cluster;
  if (cluster < 2 || mine.shape.ranks > 1) return false;
  constexpr int max_gpcs = 8;  // of the GPUs whose communicators have clusters
  int blocks = 0;
  for (const Member* member : members_) {
    blocks += std::max(member->cost(), member->shape.blocks * member->shape.ranks);
  }
  // Alone, the early launches behind one wait for it and need no place beside it.
  if (members_.size() == 1) blocks = mine.shape.blocks;
  return blocks <= multiprocessors_ - max_gpcs * (cluster - 1);
}

/// True if the launches of all ranks that are at the same place as `mine` fit together. Ranks of
/// one communicator must never wait for each other here.
bool Residency::fits(const Member& mine) const {
  int blocks = 0;
  for (const Member* member : members_) {
    if (member->shape.index == mine.shape.index) blocks += member->cost();
  }
  return blocks <= multiprocessors_;
}

/// Returns the communicators whose launches, in the capture or outside of captures, do not fit
/// beside a launch of `mine`. Those that launched last run beside it, and those of graphs, which
/// may start at any time.
std::vector<const Residency::Member*> Residency::too_many(const Member& mine,
                                                          cuuint64_t capture) const {
  std::vector<const Member*> others;
  for (const Member* other : members_) {
    const bool launched = capture != 0 ? other->ends.count(capture) != 0 : other->last != 0;
    const bool beside = other->shape.index == mine.shape.index;
    if (other != &mine && beside && launched) others.push_back(other);
  }
  std::ranges::sort(others, [capture](const Member* a, const Member* b) {
    if (capture == 0 && a->graphs != b->graphs) return a->graphs;
    return a->last > b->last;
  });
  int room = multiprocessors_ - mine.cost();
  std::erase_if(others, [&room](const Member* other) {
    const bool fits = other->cost() <= room;
    if (fits) room -= other->cost();
    return fits;
  });
  return others;
}

void Residency::list_waits(const Member& mine, cuuint64_t capture, LaunchWaits& waits) const {
  waits.inside.clear();
  waits.outside.clear();
  if (fits(mine)) return;
  if (capture == 0) {
    waits.outside = too_many(mine, 0);
    return;
  }
  waits.inside = too_many(mine, capture);
  if (mine.ends.count(capture) != 0) return;
  // The first launch in the capture. A replay may start beside any other communicator's launch.
  for (const Member* other : members_) {
    if (other != &mine && other->shape.index == mine.shape.index) waits.outside.push_back(other);
  }
}

/// True if another thread makes a launch that this one must wait for: its event is not recorded
/// yet.
bool Residency::others_launch(const LaunchWaits& waits) const {
  const auto launches = [](const Member* member) {
    return member->launching && member->thread != std::this_thread::get_id();
  };
  return std::ranges::any_of(waits.inside, launches) ||
         std::ranges::any_of(waits.outside, launches);
}

Result<void> Residency::await_others(const Member& mine, Clock::time_point since,
                                     LaunchWaits& waits) {
  const Shape& shape = mine.shape;
  if (shape.status != nullptr) CCL_CHECK(shape.status->result());
  const std::chrono::duration<double> waited = Clock::now() - since;
  if (shape.limit_s > 0 && waited.count() > shape.limit_s) {
    return fail(Errc::timed_out,
                fmt::format("another thread has launched work of another communicator on CUDA "
                            "device {}, and its launch has not returned in {} s (the device's "
                            "queue is full, or the thread is stopped); look at that thread, or "
                            "raise CCL_TIMEOUT",
                            mine.gpu->device(), shape.limit_s));
  }
  ++waiting_;
  if (others_launch(waits)) ended_.wait_for(waits.lock, std::chrono::milliseconds{50});
  --waiting_;
  return {};
}

void Residency::end(Member& mine) {
  mine.queued.store(mine.share.held, std::memory_order_relaxed);
  mine.launching = false;
  if (waiting_ == 0) return;
  { const std::lock_guard lock{mutex_}; }  // a thread that saw the launch waits now
  ended_.notify_all();
}

void Residency::captured(Member& mine, cuuint64_t capture, std::vector<CUgraphNode> ends) {
  const std::lock_guard lock{mutex_};
  mine.ends[capture] = std::move(ends);
  mine.graphs = true;
}

/// Kernels of the program have a record of their own, because they hold none of the blocks that are
/// counted.
bool Residency::waits_for_peer(const Member& member) {
  const auto waits = [](const std::shared_ptr<Gpu>& gpu) {
    return std::atomic_ref{gpu->watched().waits.peer}.load(std::memory_order_relaxed) != 0;
  };
  return waits(member.gpu) || std::ranges::any_of(member.levels, waits);
}

std::optional<Residency::Shortage> Residency::shortage() {
  const std::lock_guard lock{list_mutex_};
  Shortage found{0, 0, multiprocessors_};
  bool all_in_order = true;
  std::uint64_t first = 0;
  const auto count = [&](const Member& member) {
    ++found.communicators;
    found.blocks += member.queued;
    all_in_order &= member.shape.in_order;
  };
  std::vector<const Member*> others;
  for (const Member* member : members_) {
    const std::uint64_t last = member->last;
    if (last == 0) continue;
    if (!waits_for_peer(*member)) {
      others.push_back(member);
      continue;
    }
    count(*member);
    first = first == 0 ? last : std::min(first, last);
  }
  const int running = found.blocks;
  for (const Member* member : others) {
    const bool fits = running + member->queued <= multiprocessors_;
    if (running != 0 && member->last > first && !fits) count(*member);
  }
  if (all_in_order || found.blocks <= multiprocessors_) return {};
  return found;
}

}  // namespace ccl::detail
