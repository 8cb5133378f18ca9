#pragma once

#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/types/error.hpp>

namespace ccl::detail {

/// True if a kernel of the program has made a wrong call through a `Team`.
inline bool is_of_team(Word why) {
  return why >= LaneFailure::no_block && why <= LaneFailure::not_near;
}
/// Error of a wrong call of a kernel on this rank.
Error error_of_team(const LaneFailure& found);

}  // namespace ccl::detail
