#pragma once

#include <ccl/types/word.hpp>

#include <atomic>
#include <mutex>

namespace ccl::detail {

/// Whether this thread is a `HostStream`'s.
bool on_host_stream() noexcept;

/// The calls of one composition on CPU lanes: they run in the order in which they were made,
/// whatever streams they wait on, so that all ranks run them in one order.
class CallSequencer {
 public:
  /// Held while a turn is taken and what waits for it is put on a stream, so that no stream has
  /// calls in another order. Of several compositions: in the order of their creation.
  std::mutex& mutex() { return mutex_; }
  /// What a stream's thread calls by itself has none: turns before it might be of calls behind it
  /// on that very stream.
  Word take() { return on_host_stream() ? none : taken_.fetch_add(1, std::memory_order_relaxed); }
  /// Returns when all turns before have ended, as calls do: done, at their deadline or by abort.
  void await(Word turn) const {
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

/// A call's turn: begins when it has come.
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
