#pragma once

#include <ccl/comm/communicator.hpp>

#include <memory>

#include "nccl/abi/operations.hpp"

namespace ccl::detail::nccl {

/// Returns `operations`, for whose collectives the tuner plug-in of NCCL_TUNER_PLUGIN may choose
/// Ring or Tree and a protocol. It is shown the predicted times of these, and what it makes the
/// fastest then runs. If it changes nothing, ccl chooses among all of its algorithms.
///
/// The plug-in of rank 0 is asked, once for each collective and size, and its answer counts on all
/// ranks. Returns `operations` as they are if rank 0 has no plug-in, or if that refuses this
/// communicator. Collective.
Result<std::unique_ptr<Operations>> tuned(std::unique_ptr<Operations> operations,
                                          const Communicator& comm);

}  // namespace ccl::detail::nccl
