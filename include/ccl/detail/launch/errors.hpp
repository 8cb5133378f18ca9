#pragma once

#include <ccl/types/error.hpp>
#include <ccl/types/word.hpp>

#include <string>

namespace ccl::detail {

class Connections;
struct DryRunResult;
struct LaneFailure;

// Errors of one composition's calls. Each error names the composition and this rank.

/// Returns the text of the running call, with its number as in reports: "all_reduce/Ring/LL128/any,
/// operation 7".
std::string call_text(const Connections& connections);

/// Error: the communicator offers no peer memory, because it is one of CPU ranks.
Error no_peer_view(const Connections& connections);
/// Error: the composition has no kernel for the number of ranks. `most`: maximum ranks for which it
/// can have kernels.
Error too_many_for_peer_view(const Connections& connections, int most);
Error copies_across_hosts(const Connections& connections);
/// Error: the program has no kernel for the element type and reduction.
Error no_device_code(const Connections& connections);
/// Error: the program has no kernel with the instructions of NVLink multicast.
Error no_switch_code(const Connections& connections);
/// Error: a communicator of CPU ranks was given a CUDA stream.
Error not_on_device(const Connections& connections);
/// Error: the composition takes no counts that lie in memory.
Error no_counts(const Connections& connections);
/// Error: the scratch of a rank cannot hold a row of `row_bytes` bytes.
Error row_too_long(const Connections& connections, Index row_bytes);
/// Error: the algorithm's `run` uses a wire that its `peers` does not name.
Error no_wire(const Connections& connections, int peer, bool sends);
/// Error: memory that a rank of this host has lent could not be read.
Error unread_memory(const Connections& connections, const LaneFailure& found);
/// Error: the algorithm's `peers` names a rank outside the communicator. `way` is "from" or "to".
Error no_such_peer(const Connections& connections, int peer, const char* way);
/// Error: the algorithm's `run` names a share that does not exist.
Error no_such_share(const Connections& connections, const DryRunResult& found);
/// Error: a step of the algorithm's `run` sends or receives where its primitives have no wire.
Error no_such_step(const Connections& connections, const DryRunResult& found);
/// Error: a launch failed. `code` is a CUDA error, or the negative of the minimum slice size in
/// bytes.
Error cuda_failed(const Connections& connections, int code);
/// Error: the slices are smaller than `needed` bytes, which the lanes move at once.
Error slices_too_small(const Connections& connections, Index needed);
/// Error: the scratch cannot hold a piece of each rank's messages.
Error scratch_too_small(const Connections& connections);
/// Error: the receive buffer at `data` is in no window. A null `data` means that the call has
/// several messages.
Error not_in_window(const Connections& connections, const void* data);

}  // namespace ccl::detail
