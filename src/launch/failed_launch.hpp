#pragma once

#include "comm/state.hpp"

namespace ccl::detail {

/// Returns `error` of a launch on a stream of the GPU, annotated with this rank, and fails the
/// communicator on all ranks: the peers' launches wait for this one, and its next launch would meet
/// theirs. If the stream is being captured, nothing has run anywhere, so the communicator stays as
/// it is. It also does if the error is `Errc::invalid_argument`: the call can be made again.
Error fail_peers(CommState& state, CUstream stream, Error error);

}  // namespace ccl::detail
