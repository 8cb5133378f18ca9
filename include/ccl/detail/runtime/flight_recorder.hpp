#pragma once

#include <ccl/types/word.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace ccl {

/// How far an operation has come on one rank.
enum class OpState : int {
  queued,    // called; something before it on its stream runs
  launched,  // given to a GPU, which has not said yet that it waits in this operation or a later
             // one
  running,   // its lanes move data, or wait for their peers
  done,
  failed  // ended by a deadline, an abort or a lost rank
};
std::string_view name(OpState state);

/// One operation of one rank, as its journal keeps it. Trivially copyable: ranks tell each other.
struct Operation {
  Word number = 0;  // among the rank's collectives in order of calls, from 1: equal on all ranks;
                    // 0: a group of sends and receives, in which not all ranks take part
  char what[48] = {};   // "all_reduce/Ring/LL128/any", "barrier"
  char type[16] = {};   // of the elements
  char redop[16] = {};  // of the reduction; empty if none
  Index count = 0;      // of elements, as the caller gave it; -1: no single number
  int root = -1;
  int composition = -1;  // in order of creation; -1: none, a barrier
  Word call = 0;         // of this composition, from 1
  OpState state = OpState::queued;
  // Since 1970, as the system's clock is when the journal is read; how long ago is as the steady
  // clock says, so that no jump of the other shows. 0: not yet.
  Word queued_ns = 0, started_ns = 0, ended_ns = 0;
};

/// How far one wire has come, in steps since it was made. Both ends count alike.
struct WireSteps {
  int peer = -1, channel = 0;
  bool sends = false;  // else it comes from `peer`
  Word filled = 0;     // by the sender, as far as this end knows: packets may carry their own flags
  Word drained = 0;    // by the receiver
};

/// A rank's latest operations, in memory that the host can read whatever the lanes do: a ring of
/// CCL_JOURNAL_SIZE entries for each communicator. Any thread. An operation costs three short
/// writes and no system call.
class Journal {
 public:
  explicit Journal(int size);
  ~Journal();

  struct Noted {
    Word ticket;  // names the operation from now on
    Word number;  // see `Operation`
  };
  /// `op` has been called; numbers it unless it is point to point.
  Noted note(const Operation& op, bool point_to_point = false);
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
  std::vector<Operation> collect(int most_ended, int most_others, StateOf state_of) const;
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

}  // namespace ccl
