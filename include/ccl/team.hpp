#pragma once

#include <ccl/types.hpp>

namespace ccl {

/// Where a group stands in one launch: it works on channels `first`, `first + step`, ...
struct Team {
  int first = 0;
  int step = 1;
};

}  // namespace ccl
