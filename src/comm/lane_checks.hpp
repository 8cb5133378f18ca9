#pragma once

#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/types/error.hpp>

namespace ccl::detail {

/// True if a check of `Checked` has found this.
inline bool is_of_check(Word why) {
  return why == LaneFailure::not_a_number || why == LaneFailure::other_call;
}
/// Error of what a check has found on rank `me`.
Error error_of_check(const LaneFailure& found, int me);

}  // namespace ccl::detail
