#pragma once

namespace ccl::detail {

class Connections;
struct CallInfo;

/// Begins a range of NVTX, in which tools such as Nsight Systems show a call on this thread. It has
/// the domain "ccl", the name of the composition, the bytes of the call as payload, and a category
/// for each communicator. Returns false if no tool is attached. Otherwise `end_nvtx_range` must
/// follow on this thread.
bool begin_nvtx_range(const Connections& connections, const CallInfo& call);
/// Ends the innermost range of this thread.
void end_nvtx_range();

}  // namespace ccl::detail
