#pragma once

#include <ccl/detail/base/biased_mutex.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/runtime/call_info.hpp>
#include <ccl/detail/runtime/call_sequencer.hpp>

#include <atomic>
#include <memory>

namespace ccl::detail {

/// State that the calls of one composition on one rank share.
struct CallState {
  BiasedMutex mutex;                 // held by the call that runs
  CallSequencer sequencer;           // order of calls on CPU lanes
  std::atomic<Word> count{0};        // calls so far, without short ones
  std::atomic<Word> short_count{0};  // short calls so far; changed by the holder of `mutex`
  CallInfo latest;                   // the call that runs, or the latest one
  LaneFailure lane_failure;          // first failure of CPU lanes
  WaitRecord waits;                  // waits of CPU lanes
  std::unique_ptr<PhaseLog> phases;  // of CPU lanes; null: they note none
  AbortWatch watch;                  // status and failure words that lanes poll

  /// Numbers a call, from 1 on.
  Word next_call() {
    return count.fetch_add(1, std::memory_order_relaxed) + 1 +
           short_count.load(std::memory_order_relaxed);
  }
  /// Numbers a call of the holder of `mutex`, without an atomic addition.
  Word next_short_call() {
    const Word before = short_count.load(std::memory_order_relaxed);
    short_count.store(before + 1, std::memory_order_relaxed);
    return count.load(std::memory_order_relaxed) + before + 1;
  }
};

}  // namespace ccl::detail
