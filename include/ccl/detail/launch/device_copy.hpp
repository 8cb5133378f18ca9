#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>

namespace ccl::detail {

/// Queues a copy within this rank's memory on a stream of the communicator's GPU.
Result<void> copy_on_device(const Communicator& comm, void* to, const void* from, Index bytes,
                            Stream stream);

}  // namespace ccl::detail
