#pragma once

#include <ccl/detail/wire/compiled_lanes.hpp>
#include <ccl/detail/wire/launch.hpp>
#include <ccl/proto/simple.hpp>

namespace ccl::detail {

template <class Op, class Algo, class R>
void run_compiled_lanes(const Connections& connections, const CallArguments<R>& given) {
  const WireWork<R> work = wire_work(connections, given.reduction, given);
  HostExecutor::run<SoloLane>(work.channels, WireBody<Op, Algo, Simple, 1, R>{work});
}

}  // namespace ccl::detail

// Instantiates the lanes of an operation that moves bytes, or of one that reduces.
#define CCL_MOVING_LANES(Op, Algo)                                            \
  template void ccl::detail::run_compiled_lanes<Op, Algo>(const Connections&, \
                                                          const CallArguments<Bytes>&);
#define CCL_LANES_OF_SIZE(Op, Algo, Size)                  \
  template void ccl::detail::run_compiled_lanes<Op, Algo>( \
      const Connections&, const CallArguments<HostReduction<Size, max_sources<Algo>>>&);
#define CCL_REDUCING_LANES(Op, Algo) \
  CCL_LANES_OF_SIZE(Op, Algo, 1)     \
  CCL_LANES_OF_SIZE(Op, Algo, 2)     \
  CCL_LANES_OF_SIZE(Op, Algo, 4)     \
  CCL_LANES_OF_SIZE(Op, Algo, 8)     \
  CCL_LANES_OF_SIZE(Op, Algo, 16)
