#pragma once

#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// List of runs to copy.
struct TurnRuns {
  static constexpr int most = 9;  // 8 peers and this rank
  struct Run {
    char* to;
    const char* from;
    Index bytes;
  };
  Run run[most];
  int count = 0;

  CCL_HD void add(char* to, const char* from, Index bytes) { run[count++] = {to, from, bytes}; }
};

/// Position in a list of runs whose pieces take turns. A run that has ended is left out.
class TurnCursor {
 public:
  CCL_HD TurnCursor(const TurnRuns& runs, int first, Index piece)
      : runs_{runs}, run_{first}, first_{first}, piece_{piece} {
    if (left() && runs_.run[run_].bytes <= 0) next();
  }
  CCL_HD bool left() const { return ended_ < runs_.count; }
  CCL_HD int run() const { return run_; }
  CCL_HD Index at() const { return at_; }
  /// Moves to the next piece, or past the last one.
  CCL_HD void next() {
    // `ended_` runs in a row have no piece in this turn. If no run has one, all have ended.
    ended_ = 0;
    do {
      run_ = run_ + 1 == runs_.count ? 0 : run_ + 1;
      if (run_ == first_) at_ += piece_;
    } while (runs_.run[run_].bytes <= at_ && ++ended_ < runs_.count);
  }

 private:
  const TurnRuns& runs_;
  int run_, first_, ended_ = 0;
  Index at_ = 0, piece_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
