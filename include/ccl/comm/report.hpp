#pragma once

#include <ccl/detail/runtime/flight_recorder.hpp>
#include <ccl/types/word.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ccl {

/// For whom a rank's lanes wait, and at which step of the wire between them.
struct WaitsFor {
  int peer = -1;  // nobody
  Word step = 0;
};

/// What one rank knows of its own operations.
struct Account {
  int rank = -1;
  bool answered = false;  // where not, only `rank` and `host` are known
  std::string host;
  int pid = 0;
  Word now_ns = 0;                    // when it spoke, by its own clock, as the operations' times
  Word called = 0;                    // collectives that it has called; see `Operation::number`
  std::vector<Operation> operations;  // oldest first: what has not ended, and a few that have
  std::string meeting;  // the call of all ranks, such as finalize, that it is in; empty: none
  WaitsFor waits;       // of its oldest running operation
  std::vector<WireSteps> steps;  // of that operation's wires; at most 64

  /// The operation whose lanes are at work; null: none.
  const Operation* running() const;
  /// Its collective of that number, if the journal still has it.
  const Operation* find(Word number) const;
};

/// What all ranks of a communicator do, and who keeps the others waiting.
struct Report {
  std::vector<Account> ranks;
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
Report diagnose(std::vector<Account> ranks, int asking);

namespace detail {
/// An account on its way to other ranks; at most 64 operations and 64 wires of it.
std::vector<std::byte> pack(const Account& account);
/// False if these bytes are none.
bool unpack(std::span<const std::byte> bytes, Account& account);
}  // namespace detail

}  // namespace ccl
