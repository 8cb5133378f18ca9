#pragma once

#include <ccl/comm/report.hpp>
#include <ccl/types/word.hpp>

#include <array>
#include <cstddef>

namespace ccl::detail {

/// Decides when a rank asks the others why its operation makes no progress, and which answer it
/// logs. Times are seconds of one clock.
///
/// A pause without progress is unusual after `bound_s`. The rank asks earlier, because some causes
/// are certain: it logs such a cause when it has found it twice, a second apart.
class StallPolicy {
 public:
  /// `limit_s` is the least bound (CCL_REPORT_STALL). `rank` spreads the first questions. They come
  /// later if `ranks` is large, because every rank receives the statuses of all.
  StallPolicy(double limit_s, int rank, int ranks = 2)
      : limit_s_{limit_s}, rank_{rank}, ranks_{ranks} {}

  /// Takes a sample of the operation `ticket` that runs, 0 for none. `moved` increases with its
  /// progress. Returns true if the rank must ask now; `judge`, `give_up` or `drop` must follow.
  bool look(double now_s, Word ticket, Word moved);
  /// Another rank asks about a pause. This rank asks only if that rank stops asking.
  void yield(double now_s);
  /// Takes the answer. Returns true if it must be logged.
  bool judge(double now_s, const Report& report);
  /// Takes no answer.
  void give_up(double now_s);
  /// Drops the answer, because the pause that it is about has ended.
  void drop() { asking_ = false; }
  /// Number of the pause, or of the operation without one.
  Word pause() const { return pause_count_; }

  /// Seconds for which the operation has made no progress.
  double quiet_s(double now_s) const { return ticket_ == 0 ? 0 : now_s - since_s_; }
  Word ticket() const { return ticket_; }
  /// True if this rank asks about the pause, so that others need not.
  bool leads() const { return leads_; }
  /// True if this rank has logged a cause of the pause.
  bool has_logged() const { return logged_.cause != Cause::none; }
  /// Seconds of a pause that the history does not explain, for the pause that runs. The longest
  /// pause of the history counts for half after two hours, so that a single one is forgotten.
  double bound_s() const;
  /// Seconds after which the rank asks for the first time.
  double first_look_s() const;

 private:
  struct Finding {
    Cause cause = Cause::none;
    int behind = -1, waiting = -1;
    Word number = 0, step = 0;
    Word network_bytes = 0;  // of the waiting rank; only for a silent link
    bool operator==(const Finding&) const = default;
  };
  double longest_s(double now_s) const;
  static Finding finding_of(const Report& report);
  bool differs_from_logged(const Finding& finding) const;
  void begin(double now_s, Word ticket, Word moved);
  void end(double now_s);
  void schedule(double now_s);

  const double limit_s_;
  const int rank_, ranks_;
  Word ticket_ = 0, moved_ = 0;
  double since_s_ = 0, asked_s_ = 0, next_s_ = 0, distance_s_ = 0;
  bool asking_ = false, leads_ = false;
  Finding candidate_, logged_;
  int candidates_ = 0;              // certain causes that one answer stated
  std::array<double, 8> pauses_{};  // the latest pauses that ended by progress
  Word pause_count_ = 0;
  std::size_t next_pause_ = 0;
  double longest_s_ = 0, longest_at_s_ = 0;  // of all pauses, as of a time
};

}  // namespace ccl::detail
