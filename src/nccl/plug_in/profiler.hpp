#pragma once

#include <ccl/comm/communicator.hpp>

#include <memory>
#include <string>
#include <string_view>

#include "nccl/abi/operations.hpp"

namespace ccl::detail::nccl {

/// Returns `operations`, whose calls report to the profiler plug-in of NCCL_PROFILER_PLUGIN: an
/// event for the group, for the call, and for what runs. Returns `operations` as they are if there
/// is no plug-in, or if it refuses this communicator. `family` is equal on all ranks.
///
/// The event of a collective ends when it has been given to its stream. Calls of CPU ranks then
/// have run, and events of their channels tell the time.
std::unique_ptr<Operations> profiled(std::unique_ptr<Operations> operations,
                                     const Communicator& comm, std::string_view family,
                                     const std::string& name);

}  // namespace ccl::detail::nccl
