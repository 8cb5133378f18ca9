#include <ccl/detail/base/status.hpp>
#include <ccl/detail/runtime/call_sequencer.hpp>

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>

#include "comm/state.hpp"

namespace ccl::detail {

struct CallSequencer::Waiters {
  std::mutex mutex;
  std::condition_variable ended;
};

CallSequencer::CallSequencer() : waiters_{std::make_unique<Waiters>()} {}
CallSequencer::~CallSequencer() = default;

CallSequencer::Wait CallSequencer::await_earlier(Word turn, const Status& status, double limit_s) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock{waiters_->mutex};
  waiting_.fetch_add(1);
  auto since = Clock::now();
  Wait result = Wait::begun;
  while (ended_ != turn) {
    if (!status.ok()) {
      result = Wait::failed;
      break;
    }
    if (running_.load(std::memory_order_relaxed)) since = Clock::now();
    if (limit_s > 0 && Clock::now() - since > std::chrono::duration<double>(limit_s)) {
      result = Wait::late;
      break;
    }
    waiters_->ended.wait_for(lock, std::chrono::milliseconds{50});  // an abort notifies nobody
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return result;
}

void CallSequencer::notify() {
  // A waiter has read `ended_` and sleeps, or will read it.
  { const std::lock_guard lock{waiters_->mutex}; }
  waiters_->ended.notify_all();
}

Result<void> await_turn(const Communicator& comm, CallSequencer& sequencer, Word turn) {
  CommState& state = *Access::state(comm);
  switch (sequencer.await(turn, state.status, state.limits.timeout_s)) {
    case CallSequencer::Wait::begun:
      return {};
    case CallSequencer::Wait::failed:
      return state.ready();
    case CallSequencer::Wait::late:
      break;
  }
  const Error error = state.annotate(
      {Errc::timed_out,
       fmt::format("a call waits for an earlier one of the same composition, which has not begun "
                   "in {} s (it is on another stream, which has other work before it); synchronize "
                   "that stream first, or raise CCL_TIMEOUT",
                   state.limits.timeout_s)});
  state.rendezvous.fail_all(error);
  return fail(error);
}

}  // namespace ccl::detail
