#include <ccl/detail/rows/refusals.hpp>

#include <fmt/format.h>

#include "comm/state.hpp"

namespace ccl::detail {

std::string rows_not_aligned(Index length, const void* input) {
  return fmt::format(
      "takes rows of a multiple of 8 elements, aligned to 16 bytes, and was given {} elements at "
      "{}",
      length, input);
}

std::string rows_beyond_scratch(Index scratch_bytes, Index row_bytes) {
  return fmt::format("has {} bytes of scratch, and a row takes {}", scratch_bytes, row_bytes);
}

std::string rows_too_long(Index length, Index most) {
  return fmt::format("cannot hold a row of {} elements (the most is {})", length, most);
}

Error rows_refused(const std::string& name, const Communicator& comm, const std::string& what,
                   const char* help) {
  return Access::state(comm)->annotate(
      {Errc::invalid_argument, fmt::format("{} of rank {} {}; {}", name, comm.rank(), what, help)});
}

}  // namespace ccl::detail
