#pragma once

#include <ccl/types/word.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

namespace ccl::detail {

struct CommState;
struct WaitRecord;

/// Exit of a process while its communicators are alive. That is no failure: ranks that need nothing
/// more of the departed rank go on, and a wait for it fails all ranks.
class Departure {
 public:
  explicit Departure(CommState& state) : state_{state} {}
  Departure(const Departure&) = delete;
  Departure& operator=(const Departure&) = delete;

  /// Registers this rank for the exit of the process. Called once, when the communicator has its
  /// bootstrap.
  void start();
  /// Ends, before the bootstrap does. If the process exits, the rank departs. The state may be
  /// destroyed afterwards. Any thread, without the engine's mutex.
  void stop() noexcept;
  /// Looks once, with the engine's mutex: connects this rank to the next one that stays, and fails
  /// all ranks if a lane has waited for a departed rank since an earlier look.
  void look() noexcept;
  /// Also looks at the waits of a program's own lanes, until `forget`. Any thread.
  void watch(const WaitRecord& waits);
  void forget(const WaitRecord& waits) noexcept;
  /// Waits until calls on streams of a CPU rank have ended and the networks have all that lanes
  /// have posted. Ends after some time in which nothing moves: see `departure.cpp`. Without the
  /// engine's mutex.
  void drain() noexcept;
  /// Leaves the exit to an end in the background, for which the process waits: this rank does not
  /// depart while its last calls run. Any thread.
  void leave_to_end() { ends_.store(true); }
  bool is_left_to_end() const { return ends_.load(); }
  /// Marks that the program uses this communicator. Handles that are static objects, and were
  /// created before the first use, then end after `begin_exit`.
  void note_use() noexcept;
  /// Records that the process has begun to exit: a communicator whose last handle ends from now on
  /// departs. Earlier, that is an abort.
  static void begin_exit() noexcept;

 private:
  struct Seen {
    const WaitRecord* at;
    int peer;
    Word step, ticket, seen_ns;
    std::chrono::steady_clock::time_point since{};
    Word turns = 0;  // of the proxies at `since`
  };
  void note(const WaitRecord& waits, std::vector<Seen>& seen) const;
  std::vector<Seen> waits();
  int departed_of(const Seen& wait) const;
  bool is_hopeless(const Seen& before, const Seen& now) const;
  Word turns() const;

  CommState& state_;
  std::atomic<bool> ends_{false}, used_{false};
  bool started_ = false;
  std::mutex programs_mutex_;
  std::vector<const WaitRecord*> programs_;
  std::vector<Seen> seen_;  // waits for departed ranks at earlier looks
};

}  // namespace ccl::detail
