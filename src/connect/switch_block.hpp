#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <memory>
#include <string_view>

#include "comm/state.hpp"
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

}  // namespace ccl::detail
