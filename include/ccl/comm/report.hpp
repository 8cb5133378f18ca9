#pragma once

#include <ccl/types/word.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ccl {

/// Progress of an operation on one rank.
enum class OpState : int {
  queued,  ///< called; an earlier operation on its stream runs
  /// Given to a GPU, which has not reported that it waits in this operation or a later one.
  launched,
  running,  ///< its lanes move data or wait for their peers
  done,
  failed  ///< ended by a deadline, an abort or a lost rank
};
std::string_view name(OpState state);

/// Operation of one rank, as its flight recorder keeps it. Trivially copyable, because ranks
/// exchange it as bytes.
struct Operation {
  /// Index among the rank's collectives in call order, from 1, equal on all ranks. 0: a group of
  /// sends and receives, in which not all ranks take part.
  Word number = 0;
  char what[48] = {};  ///< "all_reduce/Ring/LL128/any", "barrier"
  char type[16] = {};  ///< type of the elements
  /// Name of the reduction; empty if none. A longer name is cut and ends with `~` and a hash.
  char redop[32] = {};
  Index count = 0;  ///< elements as given by the caller; -1: no single number
  int root = -1;
  int composition = -1;  ///< index in order of creation; -1: none (a barrier)
  Word call = 0;         ///< index of the call to this composition, from 1
  OpState state = OpState::queued;
  /// Nanoseconds since 1970 by the system clock at the time of reading. Ages come from the steady
  /// clock, so clock changes do not affect them. 0: not yet.
  Word queued_ns = 0, started_ns = 0, ended_ns = 0;
};

/// Progress of one wire, in steps since its creation. Both ends count alike.
struct WireSteps {
  int peer = -1, channel = 0;
  bool sends = false;  ///< true: sends to `peer`; false: receives from it
  /// Steps filled by the sender, as far as this end can see; packets can carry their own flags.
  Word filled = 0;
  Word drained = 0;      ///< steps drained by the receiver
  int composition = -1;  ///< index of its composition, as in `Operation`
  bool proxied = false;  ///< true: a proxy moves its data over a network
};

/// Peer for which a rank's lanes wait, and the step of the wire between them.
struct WaitsFor {
  int peer = -1;  ///< -1: none
  Word step = 0;
};

/// Operation of another communicator of the same process that makes no progress.
struct OtherOperation {
  std::string text;       ///< operation, communicator and wait; empty: none
  std::string peer_host;  ///< host of the rank that it waits for
  int peer_pid = 0;       ///< process of that rank
};

/// Kind of reason for which a rank is behind.
enum class Cause : int {
  none,             ///< no rank is behind, or the reason is unknown
  not_called,       ///< the rank has not called the operation, or the call of all ranks
  other_operation,  ///< it called another operation, or operations in another order
  other_type,       ///< it called the operation with another type of elements
  other_count,      ///< with another count
  other_reduction,  ///< with another reduction
  other_root,       ///< with another root
  other_step,       ///< it is in another call of all ranks, such as `finalize`
  communicators,    ///< ranks wait for each other in operations of several communicators
  queued,           ///< it called the operation, which waits behind other work of its stream
  no_place,         ///< its kernel has not started, because the GPU has no place for all blocks
  no_answer,        ///< its process is stopped or cut off
  silent_link,      ///< it has sent data that the network does not deliver
  stuck_proxy,      ///< the thread that moves its network data does not run
  circle,           ///< ranks wait for each other in the operation
  working           ///< it is in the operation and waits for no rank
};
std::string_view name(Cause cause);
/// True if time does not remove the cause: what was seen twice is a fault. A rank with another
/// cause may only be late.
bool certain(Cause cause);

/// Status of one rank's operations, as the rank reports it.
struct RankStatus {
  int rank = -1;
  bool answered = false;  ///< false: only `rank` and `host` are known
  std::string host;
  int pid = 0;
  Word now_ns = 0;  ///< time of the status by the rank's clock, as for the operations
  Word called = 0;  ///< number of collectives that it has called; see `Operation::number`
  /// Oldest first: all that have not ended, and a few that have.
  std::vector<Operation> operations;
  std::string rendezvous;  ///< call of all ranks in which it waits, such as finalize; empty: none
  Word rendezvous_number = 0;  ///< calls of all ranks that it has begun; 0: unknown
  /// Sentence on launches in flight whose blocks may not all have a place on its GPU; empty: none.
  std::string shortage;
  WaitsFor waits;  ///< wait of the operation that `running` returns
  /// Wires of that operation and of its latest others, at most 64.
  std::vector<WireSteps> steps;
  Word network_bytes = 0;    ///< bytes that its proxy has moved
  double proxy_stuck_s = 0;  ///< seconds for which its proxy has work and does not run
  OtherOperation elsewhere;  ///< operation of another communicator in which its process waits
  Word asks_about = 0;       ///< nonzero: it asks the others why this operation does not progress

  /// Returns the operation whose lanes are at work, or null. A collective comes before messages: a
  /// receive may wait on purpose, beside collectives of other streams.
  const Operation* running() const;
  /// Returns the collective with this number, or null if the flight recorder does not hold it.
  const Operation* find(Word number) const;
};

/// State of all ranks of a communicator, and the rank that delays the others.
struct Report {
  std::vector<RankStatus> ranks;
  int behind = -1;            ///< rank for which the others wait; -1: none
  Operation operation;        ///< operation in which they wait
  int waiting = -1;           ///< a rank that waits for it; -1: unknown
  Word step = 0;              ///< step of the wire between them at which it waits
  std::string summary;        ///< the result in a sentence: rank, operation, step and peer
  Cause cause = Cause::none;  ///< reason for which that rank is behind

  /// Returns one line for the result, and one line for each group of ranks in the same state.
  std::string text() const;
};

/// Finds the rank that is behind. Element r of `ranks` is the status of rank r, whose `rank` is
/// set. Of several the first in this list wins, and then the one for which rank `asking` waits:
/// - a rank that does not answer,
/// - a rank that has called another operation than the others,
/// - a rank that has not called the operation that the others run,
/// - a rank whose proxy does not run,
/// - a rank whose data the network does not deliver,
/// - a rank for which the others wait in the same operation.
Report diagnose(std::vector<RankStatus> ranks, int asking);

namespace detail {
/// Packs a status into bytes for other ranks, with at most 64 operations and 64 wires.
std::vector<std::byte> pack(const RankStatus& rank_status);
/// Returns false if the bytes are not a valid rank status.
bool unpack(std::span<const std::byte> bytes, RankStatus& rank_status);
/// Returns `RankStatus::asks_about` of a packed status; 0 if the bytes are not one.
Word asks_about(std::span<const std::byte> bytes);
}  // namespace detail

}  // namespace ccl
