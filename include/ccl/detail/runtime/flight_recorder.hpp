#pragma once

#include <ccl/comm/report.hpp>
#include <ccl/detail/base/biased_mutex.hpp>
#include <ccl/detail/runtime/call_info.hpp>
#include <ccl/types/word.hpp>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

namespace ccl::detail {

/// Ring of a rank's latest operations, with CCL_FLIGHT_RECORDER_SIZE entries for each communicator.
/// It lies in memory that the host can read at any time. Any thread. An operation costs three short
/// writes, and no system call on the thread that makes most of them (see `BiasedMutex`).
class FlightRecorder {
 public:
  explicit FlightRecorder(int size);
  ~FlightRecorder();

  struct EntryId {
    Word ticket;  // names the operation in later calls
    Word number;  // see `Operation`
  };
  /// Counters of a kind of call. The recorder's mutex guards their changes, which are cheaper so.
  struct Tally {
    std::atomic<Word>* calls = nullptr;  // null: no counters
    std::atomic<Word>* bytes = nullptr;
    Word more_bytes = 0;
  };
  /// Records the call of `op` and counts it. Numbers it unless it is point to point.
  EntryId note(const Operation& op, bool point_to_point, const Tally& tally);
  EntryId note(const Operation& op, bool point_to_point = false) {
    return note(op, point_to_point, Tally{});
  }
  /// Records a call of a composition `name` whose lanes start at once, as `note` and `started` do.
  EntryId note_running(const ShownName& name, const CallInfo& info, bool point_to_point,
                       const Tally& tally);
  /// Keeps an operation that a CUDA graph holds beside the ring, because a replay may run it at any
  /// time. The latest `max_kept` stay.
  void keep(Word ticket);
  static constexpr std::size_t max_kept = 4096;
  /// Records the start of the lanes. Does nothing if the entry has been overwritten.
  void started(Word ticket);
  /// Records the start of a call in its caller's thread, although others run on a GPU: a barrier.
  void started_on_host(Word ticket);
  /// Counters of the calls of a kind that have ended well. The recorder's mutex guards their
  /// changes, too.
  struct EndTally {
    std::atomic<Word>* calls = nullptr;  // null: no counters
    std::atomic<Word>* ticks = nullptr;
  };
  /// Records the end. Returns the CPU ticks since `started`, or 0 if they are not known. If they
  /// are and all went well, counts both.
  Word ended(Word ticket, bool well, const EndTally& tally);
  Word ended(Word ticket, bool well) { return ended(ticket, well, EndTally{}); }
  /// Nanoseconds of a CPU tick, as measured since the recorder was made.
  double ns_per_tick() const { return read_clocks().ns_per_tick; }

  /// Returns all operations that have not ended and the latest `most` others, oldest first.
  std::vector<Operation> latest(int most) const;
  /// Returns the operations of a GPU, which reports only the operation in which it waits: `ticket`,
  /// or 0 for none. Calls on the host are known as they are. A GPU runs operations in order, so all
  /// earlier ones have ended. Of the operations that have not ended, it returns the latest `most`,
  /// and `ticket` in any case.
  std::vector<Operation> latest_on_device(int most, Word ticket) const;
  /// Names the oldest operation that runs.
  struct Running {
    Word ticket = 0;  // 0: none
    Word number = 0;
    int composition = -1;
  };
  /// Returns the oldest collective that runs; without one, the oldest messages. A receive may wait
  /// on purpose, beside collectives of other streams. `from` is a ticket before which all
  /// operations have ended, 1 at first; the call raises it. A GPU's operations keep running here:
  /// see `latest_on_device`.
  Running oldest_running(Word& from) const;
  /// Names the operation `ticket`. It has no number if it has been overwritten and was not kept.
  Running find(Word ticket) const;
  /// Ticket of the latest operation; 0: none.
  Word latest_ticket() const;
  /// Finds the first operation after `ticket` that is of the operation of `op`, and replaces `op`
  /// by it. Returns its ticket, or 0 without one.
  Word find_after(Word ticket, Operation& op) const;
  /// Replaces `op` by the operation `ticket`. Returns false if it has been overwritten.
  bool read(Word ticket, Operation& op) const;
  /// Number of collectives that have been called.
  Word called() const { return collectives_.load(std::memory_order_relaxed); }

 private:
  struct Entry;
  Entry& next_entry(const Tally& tally);
  EntryId number(Entry& entry, bool point_to_point);
  template <class StateOf>
  std::vector<Operation> collect(int max_ended, int max_others, StateOf state_of) const;
  struct Now {
    Word when(Word then) const;  // nanoseconds since 1970 for a number of ticks
    Word ticks = 0, system_ns = 0;
    double ns_per_tick = 1;
  };
  Now read_clocks() const;
  static Operation record_of(const Entry& entry, OpState state, const Now& now);
  const Entry* entry_of(Word ticket) const;
  Operation overwritten(Word ticket) const;

  std::unique_ptr<Entry[]> entries_;
  const int size_;
  mutable BiasedMutex mutex_;  // guards `note`, tallies and readers; the rest takes no lock
  Word tickets_ = 0;
  std::atomic<Word> collectives_{0};
  Word first_ticks_ = 0, first_ns_ = 0;  // `first_ns_` is by the steady clock
  std::map<Word, Operation> kept_;       // by ticket
};

}  // namespace ccl::detail
