#pragma once

#include <ccl/comm/report.hpp>
#include <ccl/types/word.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace ccl::detail {

/// A rank's latest operations, in memory that the host can read whatever the lanes do: a ring of
/// CCL_FLIGHT_RECORDER_SIZE entries for each communicator. Any thread. An operation costs three
/// short writes and no system call.
class FlightRecorder {
 public:
  explicit FlightRecorder(int size);
  ~FlightRecorder();

  struct EntryId {
    Word ticket;  // names the operation from now on
    Word number;  // see `Operation`
  };
  /// `op` has been called; numbers it unless it is point to point.
  EntryId note(const Operation& op, bool point_to_point = false);
  /// Its lanes start. Nothing happens where the entry has been overwritten.
  void started(Word ticket);
  void ended(Word ticket, bool well);

  /// Operations, oldest first: what has not ended, and the latest `most` others.
  std::vector<Operation> latest(int most) const;
  /// The same of a GPU, which tells only in which operation it waits: `ticket`; 0: in none. It runs
  /// them in order, so those before have ended, and of those after nothing is known. At most the
  /// latest `most` of what has not ended, too.
  std::vector<Operation> latest_on_device(int most, Word ticket) const;
  /// How many collectives have been called.
  Word called() const { return collectives_.load(std::memory_order_relaxed); }

 private:
  struct Entry;
  template <class StateOf>
  std::vector<Operation> collect(int max_ended, int max_others, StateOf state_of) const;
  struct Now {
    Word when(Word then) const;  // of ticks, in nanoseconds since 1970
    Word ticks = 0, system_ns = 0;
    double ns_per_tick = 1;
  };
  Now read_clocks() const;

  std::unique_ptr<Entry[]> entries_;
  const int size_;
  mutable std::mutex mutex_;  // of `note` and of readers; `started` and `ended` take none
  Word tickets_ = 0;
  std::atomic<Word> collectives_{0};
  Word first_ticks_ = 0, first_ns_ = 0;  // the latter by the steady clock
};

}  // namespace ccl::detail
