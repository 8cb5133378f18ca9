#pragma once

#include <ccl/types/word.hpp>

#include <atomic>
#include <mutex>

namespace ccl::detail {

/// Returns true on the thread of a `HostStream`.
bool on_host_stream() noexcept;

/// Order of the calls of one composition on CPU lanes. Calls run in the order in which they were
/// made, on any stream, so that all ranks run them in one order.
class CallSequencer {
 public:
  /// Lock that a caller holds while it takes a turn and queues the waiting call, so that no stream
  /// has calls in another order. Locks of several compositions are taken in the order of creation.
  std::mutex& mutex() { return mutex_; }
  /// Takes a turn. Returns `none` on the thread of a stream, because earlier turns may belong to
  /// calls that wait behind it on that stream.
  Word take() { return on_host_stream() ? none : taken_.fetch_add(1, std::memory_order_relaxed); }
  /// Blocks until all earlier turns have completed, timed out or been aborted.
  void await(Word turn) {
    Word now = none;
    while (turn != none && (now = ended_.load(std::memory_order_acquire)) != turn) {
      ended_.wait(now, std::memory_order_acquire);
    }
  }
  void end(Word turn) {
    if (turn == none) return;
    ended_.store(turn + 1, std::memory_order_release);
    ended_.notify_all();
  }

 private:
  static constexpr Word none = ~Word{0};
  std::mutex mutex_;
  std::atomic<Word> taken_{0}, ended_{0};
};

/// Turn of a call. The constructor blocks until the turn begins.
class CallTicket {
 public:
  explicit CallTicket(CallSequencer& sequencer) : CallTicket{sequencer, sequencer.take()} {}
  CallTicket(CallSequencer& sequencer, Word number) : sequencer_{sequencer}, number_{number} {
    sequencer.await(number);
  }
  ~CallTicket() { sequencer_.end(number_); }
  CallTicket(const CallTicket&) = delete;
  CallTicket& operator=(const CallTicket&) = delete;

 private:
  CallSequencer& sequencer_;
  Word number_;
};

}  // namespace ccl::detail
