#pragma once

#include <ccl/detail/lanes/host_lanes.hpp>

namespace ccl {

/// Group of one CPU thread. A `TeamSession` of it is a block of a kernel that runs on a CPU rank:
/// `TeamSession session{SoloLane{}, device.team(), block, blocks}`.
using detail::SoloLane;

}  // namespace ccl
