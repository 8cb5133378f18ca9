#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>

#include <functional>

namespace ccl::detail {

/// Queues a copy within this rank's memory on a stream of the communicator's GPU.
Result<void> copy_on_device(const Communicator& comm, void* to, const void* from, Index bytes,
                            Stream stream);
/// Runs a launch that has no turn among those of the communicator, in the context of its GPU. The
/// thread may have another context, whose default stream would be another one.
int in_context(const Communicator& comm, const std::function<int()>& launch);

}  // namespace ccl::detail
