#pragma once

#include <ccl/types/word.hpp>

#include <cstddef>
#include <span>
#include <string>
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

/// For whom a rank's lanes wait, and at which step of the wire between them.
struct WaitsFor {
  int peer = -1;  // nobody
  Word step = 0;
};

/// What one rank knows of its own operations.
struct RankStatus {
  int rank = -1;
  bool answered = false;  // where not, only `rank` and `host` are known
  std::string host;
  int pid = 0;
  Word now_ns = 0;                    // when it spoke, by its own clock, as the operations' times
  Word called = 0;                    // collectives that it has called; see `Operation::number`
  std::vector<Operation> operations;  // oldest first: what has not ended, and a few that have
  std::string rendezvous;  // the call of all ranks, such as finalize, that it is in; empty: none
  WaitsFor waits;       // of its oldest running operation
  std::vector<WireSteps> steps;  // of that operation's wires; at most 64

  /// The operation whose lanes are at work; null: none.
  const Operation* running() const;
  /// Its collective of that number, if the journal still has it.
  const Operation* find(Word number) const;
};

/// What all ranks of a communicator do, and who keeps the others waiting.
struct Report {
  std::vector<RankStatus> ranks;
  int behind = -1;      // the rank that the others wait for; -1: nobody waits
  Operation operation;  // in which
  int waiting = -1;     // a rank that waits for it; -1: unknown
  Word step = 0;        // of the wire between them, where it waits
  std::string verdict;  // the same in a sentence: rank, operation, step and peer

  /// A line for the verdict and one for each group of ranks that are at the same point.
  std::string text() const;
};

/// Who is behind, in this order: a rank that does not answer; one that has called something else
/// than the others; one that has not called what the others run; one for whom the others wait in
/// the same operation. `asking` breaks ties: whom it waits for comes first.
Report diagnose(std::vector<RankStatus> ranks, int asking);

namespace detail {
/// An account on its way to other ranks; at most 64 operations and 64 wires of it.
std::vector<std::byte> pack(const RankStatus& rank_status);
/// False if these bytes are none.
bool unpack(std::span<const std::byte> bytes, RankStatus& rank_status);
}  // namespace detail

}  // namespace ccl
