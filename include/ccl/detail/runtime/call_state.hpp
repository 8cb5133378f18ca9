#pragma once

#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/runtime/call_info.hpp>
#include <ccl/detail/runtime/call_sequencer.hpp>
#include <ccl/detail/runtime/proxy_helper.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

namespace ccl::detail {

/// State that the calls of one composition on one rank share.
struct CallState {
  std::mutex mutex;                   // held by the call that runs
  CallSequencer sequencer;            // order of calls on CPU lanes
  std::atomic<Word> count{0};         // calls so far
  CallInfo latest;                    // the call that runs, or the latest one
  LaneFailure lane_failure;           // first failure of CPU lanes
  WaitRecord waits;                   // waits of CPU lanes
  std::unique_ptr<PhaseLog> phases;   // of CPU lanes; null: they note none
  AbortWatch watch;                   // status and failure words that lanes poll
  std::optional<ProxyHelper> helper;  // while CPU lanes run over proxied wires
};

}  // namespace ccl::detail
