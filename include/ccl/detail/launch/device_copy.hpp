#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>

namespace ccl::detail {

/// Queues a copy within this rank's memory on a stream of the communicator's GPU.
Result<void> copy_on_device(const Communicator& comm, void* to, const void* from, Index bytes,
                            Stream stream);
/// Runs a launch that has no turn among those of the communicator, in the context of its GPU. The
/// thread may have another context, whose default stream would be another one.
int in_context(const Communicator& comm, int (*launch)(const void* with), const void* with);
/// Runs `launch()` so. No `std::function`: nearly every program includes this header, and
/// <functional> would be a tenth of what it compiles.
template <class F>
int in_context(const Communicator& comm, const F& launch) {
  return in_context(
      comm, [](const void* with) { return (*static_cast<const F*>(with))(); }, &launch);
}

}  // namespace ccl::detail
