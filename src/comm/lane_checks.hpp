#pragma once

#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/types/error.hpp>

#include <string>

namespace ccl::detail {

/// True if lanes have compared calls or data, and have found this.
inline bool is_of_check(Word why) {
  return why == LaneFailure::not_a_number || why == LaneFailure::other_call ||
         why == LaneFailure::other_place;
}
/// Text of a `WindowPlaceWord`: "at offset 64 of window 3", "in no window".
std::string place_text(Word place);
/// Error of what a check has found on rank `me`.
Error error_of_check(const LaneFailure& found, int me);

}  // namespace ccl::detail
