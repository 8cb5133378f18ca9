#pragma once

#include <ccl/types/connection.hpp>
#include <ccl/types/wire.hpp>

#include <memory>
#include <string>
#include <vector>

#include "proxy/transfer_listener.hpp"

namespace ccl::detail {

/// Notes of a task about the steps of one line, for a `TransferLog` and its listener. One thread at
/// a time.
class TransferNotes {
 public:
  static constexpr bool wanted = true;
  /// `wire`: the proxy's, which the task keeps for as long as the notes.
  TransferNotes(TransferLog* log, const Edge& edge, const Wire& wire, int channel, int stream);
  TransferNotes(TransferNotes&&) = default;
  TransferNotes& operator=(TransferNotes&&) = delete;
  ~TransferNotes();

  /// Returns the time for `begin` and `end`.
  static Word now();
  /// Names the NICs or interfaces of the steps to come, which take turns.
  void use_networks(const std::vector<std::string>& names);
  /// The lanes have posted all steps before `until`.
  void posted(Word until);
  /// The first bytes of a step have moved at time `at`, of `bytes` in all; 0: not known yet. Later
  /// calls for the step do nothing.
  void begin(Word step, Word at, Word bytes = 0);
  /// The last bytes of a step have moved. `at` is its begin if none was noted.
  void end(Word step, Word bytes, Word at);
  /// Returns who follows the line; null: nobody.
  const std::shared_ptr<LineListener>& listener() const { return listener_; }

 private:
  /// Times of a step on its way.
  struct Slot {
    Word posted = 0, begun = 0;
  };
  Slot& slot(Word step) { return slots_[step % slots_.size()]; }

  TransferLog* log_;
  TransferLine line_;
  std::shared_ptr<LineListener> listener_;  // null: nobody follows the line
  std::vector<int> networks_;
  Word posted_ = 0;  // steps that the lanes have posted
  std::vector<Slot> slots_;
};

/// Replaces `TransferNotes` in tasks without a log, and has no code.
struct NoTransferNotes {
  static constexpr bool wanted = false;
  NoTransferNotes(TransferLog*, const Edge&, const Wire&, int, int) {}
  static Word now() { return 0; }
  void posted(Word) {}
  void begin(Word, Word, Word = 0) {}
  void end(Word, Word, Word) {}
};

}  // namespace ccl::detail
