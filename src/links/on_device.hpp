#pragma once

#include <ccl/links.hpp>

#include "gpu/memory.hpp"

namespace ccl::detail {

/// What the wires of a rank on a GPU stand on.
struct Links::OnDevice {
  GpuArena arena;
  GpuBlock tables{};
  std::vector<Connection> connections{};
  std::vector<std::shared_ptr<void>> held{};
  bool holds_slots = false;  // of some wires into this rank
};

}  // namespace ccl::detail
