#pragma once

#include <ccl/types/plan.hpp>

#include <array>

namespace ccl::detail {

/// Blocks of a launch on a GPU if neither the program nor a setting bounds them.
inline constexpr int default_max_blocks = 32;

/// Plans by the medium of a communicator's most expensive edge. All wires have one shape.
struct Plans {
  std::array<Plan, 3> by_medium;
  Index min_slot_bytes = 1024;  // minimum to which slots may shrink if memory is short
  static Plans same(const Plan& plan) { return {{plan, plan, plan}}; }
};

}  // namespace ccl::detail
