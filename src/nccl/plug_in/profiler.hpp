#pragma once

#include <ccl/comm/communicator.hpp>

#include <memory>
#include <string>
#include <string_view>

#include "nccl/abi/operations.hpp"

namespace ccl::detail::nccl {

struct CommProfile;
struct CommProfileEnd {
  void operator()(CommProfile* ended) const;
};
using CommProfilePtr = std::unique_ptr<CommProfile, CommProfileEnd>;

/// Looks for the profiler plug-in of NCCL_PROFILER_PLUGIN. Called before the first communicator is
/// created, whose proxies then tell of what they move.
void prepare_profiler();

/// Begins a communicator of the profiler plug-in, before connections are made. Returns null if
/// there is no plug-in, or if it refuses this communicator. `family` is equal on all ranks.
CommProfilePtr start_profile(const Communicator& comm, std::string_view family,
                             const std::string& name);

/// Returns `operations`, whose calls report to the plug-in: an event for the group, for the call,
/// for what runs, and for what proxies move. Returns `operations` as they are without a profile.
///
/// The event of a collective ends when it has been given to its stream. Calls of CPU ranks then
/// have run, and events of their channels tell the time.
std::unique_ptr<Operations> profiled(std::unique_ptr<Operations> operations,
                                     CommProfilePtr profile);

}  // namespace ccl::detail::nccl
