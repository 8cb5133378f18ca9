#pragma once

#include <ccl/comm/communicator.hpp>

#include <memory>
#include <string_view>

#include "nccl/abi/operations.hpp"

namespace ccl::detail::nccl {

/// Returns `operations`, for whose collectives the tuner plug-in of NCCL_TUNER_PLUGIN may choose
/// Ring or Tree and a protocol. It is shown the predicted times of these, and what it makes the
/// fastest then runs. If it changes no choice, ccl chooses among all of its algorithms.
///
/// Returns `operations` as they are if there is no plug-in, or if it refuses this communicator. The
/// plug-in must choose alike on all ranks. `family` is equal on all ranks.
std::unique_ptr<Operations> tuned(std::unique_ptr<Operations> operations, const Communicator& comm,
                                  std::string_view family);

}  // namespace ccl::detail::nccl
