#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <memory>
#include <string_view>

#include "comm/state.hpp"
#include "gpu/memory.hpp"
#include "gpu/multicast.hpp"

namespace ccl::detail {

/// Makes `bytes` zeroed bytes, or some more, on the GPU of each rank, which a multicast address of
/// all of them reaches. `number` is that of the composition `name`. Succeeds on all ranks or fails
/// on all. Collective; the caller holds the bootstrap, and `so_far` is the result of this rank's
/// preparation. Not run on hardware.
///
/// The driver waits without a limit for GPUs that were not added, or if Fabric Manager stalls. So
/// no rank binds before all have added their GPUs, and a rank waits for the driver at most half of
/// the creation limit. It then leaves a thread in the driver, and the error says so.
Result<std::shared_ptr<MulticastBlock>> make_switch_block(CommState& state, int number,
                                                          std::string_view name, std::size_t bytes,
                                                          const Result<void>& so_far);

/// Part of this rank's memory that holds a window, as the driver binds it: whole granules.
struct SwitchRange {
  std::byte* at = nullptr;
  std::size_t bytes = 0;
  std::size_t lead = 0;  // bytes before the window
};
/// Returns the range of a window of `bytes` bytes at `own`. Fails if that memory has no cuMem
/// handle, or ends within a granule of the window.
Result<SwitchRange> switch_range(const CommState& state, const GpuBlock& own, std::size_t bytes);
/// Makes a multicast address of all ranks' ranges, of memory of the user. Fails on all ranks if
/// their windows do not begin equally far from a granule. As `make_switch_block`.
Result<std::shared_ptr<MulticastBlock>> bind_switch_range(CommState& state, std::string_view name,
                                                          const SwitchRange& range,
                                                          const Result<void>& so_far);

}  // namespace ccl::detail
