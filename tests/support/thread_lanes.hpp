#pragma once

#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/detail/lanes/host_memory.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace ccl::detail {

/// Barrier of a lock and a condition variable. `std::barrier` is not used: 32 lanes under the
/// thread sanitizer hung in it once (libstdc++ 13, many cores), and the cause is not known.
class LaneBarrier {
 public:
  explicit LaneBarrier(int width) : width_{width} {}
  void arrive_and_wait() {
    std::unique_lock lock{mutex_};
    const unsigned round = round_;
    if (++arrived_ == width_) {
      arrived_ = 0;
      ++round_;
      lock.unlock();
      open_.notify_all();
      return;
    }
    open_.wait(lock, [&] { return round_ != round; });
  }

 private:
  const int width_;
  int arrived_ = 0;
  unsigned round_ = 0;
  std::mutex mutex_;
  std::condition_variable open_;
};

/// Group of `Width` CPU threads, for tests of code that runs in a warp. A handle; the `Team` must
/// outlive it.
template <int Width>
class ThreadLanes {
 public:
  static constexpr int width = Width;
  using Memory = HostMemory;

  struct Team {
    detail::LaneBarrier gate{Width};
    std::atomic<int> against{0};
    float part[Width] = {};  // one value per lane, between two syncs
    Word word = 0;           // of one lane, between two syncs
  };

  ThreadLanes(Team& team, int rank) : team_{&team}, rank_{rank} {}

  int rank() const { return rank_; }
  void sync() const { team_->gate.arrive_and_wait(); }
  bool all(bool vote) const {
    team_->against += !vote;
    sync();
    const bool result = team_->against == 0;
    sync();
    if (!vote) --team_->against;
    sync();
    return result;
  }
  float max(float value) const {
    return fold(value, [](float a, float b) { return a < b ? b : a; });
  }
  Word from(Word word, int lane) const {
    if (lane == rank_) team_->word = word;
    sync();
    const Word result = team_->word;
    sync();
    return result;
  }
  float block_sum(float value) const {  // a block is one group
    return fold(value, [](float a, float b) { return a + b; });
  }
  float block_max(float value) const { return max(value); }

 private:
  template <class F>
  float fold(float value, F f) const {
    team_->part[rank_] = value;
    sync();
    float result = team_->part[0];
    for (int l = 1; l < Width; ++l) result = f(result, team_->part[l]);
    sync();
    return result;
  }

  Team* team_;
  int rank_;
};
static_assert(ReducingLanes<ThreadLanes<8>>);

template <int Width>
struct GroupLanes<ThreadLanes<Width>> {
  template <class Body>
  static void run(int channels, const Body& body) {
    using Team = typename ThreadLanes<Width>::Team;
    const IdleHook hook = idle_hook;
    std::vector<Team> teams(channels);
    std::vector<std::thread> threads;
    for (int c = 0; c < channels; ++c) {
      for (int l = 0; l < Width; ++l) {
        threads.emplace_back([&body, &teams, hook, c, l] {
          idle_hook = hook;
          run_lane(body, ThreadLanes<Width>{teams[c], l}, c);
        });
      }
    }
    for (auto& thread : threads) thread.join();
  }
};

}  // namespace ccl::detail
