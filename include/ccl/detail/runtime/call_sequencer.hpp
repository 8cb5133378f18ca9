#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <atomic>
#include <memory>
#include <mutex>

namespace ccl {
class Communicator;
}

namespace ccl::detail {

class Status;

/// Returns true on the thread of a `HostStream`.
bool on_host_stream() noexcept;

/// Order of the calls of one composition on CPU lanes. Calls run in the order in which they were
/// made, on any stream, so that all ranks run them in one order.
class CallSequencer {
 public:
  /// Result of a wait for a turn: the turn has begun, the status has failed, or no earlier turn has
  /// begun within the limit.
  enum class Wait { begun, failed, late };

  CallSequencer();
  ~CallSequencer();

  /// Lock that a caller holds while it takes a turn and queues the waiting call, so that no stream
  /// has calls in another order. Locks of several compositions are taken in the order of creation.
  std::mutex& mutex() { return mutex_; }
  /// Takes a turn. Returns `none` on the thread of a stream, because earlier turns may belong to
  /// calls that wait behind it on that stream.
  Word take() { return on_host_stream() ? none : taken_.fetch_add(1, std::memory_order_relaxed); }
  /// Blocks until all earlier turns have ended or `status` fails. An earlier turn that runs has
  /// limits of its own; one that does not run counts as late after `limit_s` seconds, 0 for never.
  Wait await(Word turn, const Status& status, double limit_s) {
    if (turn == none) return Wait::begun;
    if (ended_.load(std::memory_order_acquire) != turn) {
      const Wait came = await_earlier(turn, status, limit_s);
      if (came != Wait::begun) return came;
    }
    running_.store(true, std::memory_order_relaxed);
    return Wait::begun;
  }
  /// True if all turns that were taken have ended. A call that is made now has none to wait for.
  bool idle() const {
    return ended_.load(std::memory_order_acquire) == taken_.load(std::memory_order_relaxed);
  }
  /// Ends a turn that has begun.
  void end(Word turn) {
    if (turn == none) return;
    running_.store(false, std::memory_order_relaxed);  // another turn begins after the next store
    ended_.store(turn + 1);  // a waiter counts itself, then reads this: one of both sees the other
    if (waiting_.load() != 0) notify();
  }

 private:
  static constexpr Word none = ~Word{0};
  Wait await_earlier(Word turn, const Status& status, double limit_s);
  void notify();

  std::mutex mutex_;
  std::atomic<Word> taken_{0};
  std::atomic<Word> ended_{0};        // turns that have ended
  std::atomic<bool> running_{false};  // the turn `ended_` has begun
  std::atomic<int> waiting_{0};       // threads that wait for `ended_`
  struct Waiters;
  std::unique_ptr<Waiters> waiters_;  // sleep until `ended_` changes
};

/// Blocks until the turn of a call on `comm` begins. Returns the failure of the communicator, or
/// fails it with `Errc::timed_out` if the calls before this one do not begin within CCL_TIMEOUT.
Result<void> await_turn(const Communicator& comm, CallSequencer& sequencer, Word turn);

/// Turn of a call. The constructor blocks as `await_turn` does.
class CallTicket {
 public:
  CallTicket(const Communicator& comm, CallSequencer& sequencer)
      : CallTicket{comm, sequencer, sequencer.take()} {}
  CallTicket(const Communicator& comm, CallSequencer& sequencer, Word number)
      : sequencer_{sequencer}, number_{number}, begun_{await_turn(comm, sequencer, number)} {}
  ~CallTicket() {
    if (begun_) sequencer_.end(number_);
  }
  CallTicket(const CallTicket&) = delete;
  CallTicket& operator=(const CallTicket&) = delete;

  /// Returns the failure that kept the turn from its beginning. The call must not run then.
  const Result<void>& begun() const { return begun_; }

 private:
  CallSequencer& sequencer_;
  Word number_;
  Result<void> begun_;
};

}  // namespace ccl::detail
