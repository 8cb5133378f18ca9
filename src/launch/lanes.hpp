#pragma once

#include <ccl/detail/wire/compiled_lanes.hpp>
#include <ccl/detail/wire/launch.hpp>
#include <ccl/proto/simple.hpp>

#include "launch/short_context.hpp"

namespace ccl::detail {

/// Algorithms that have steps of their own for short calls: those that `Auto` takes for them.
template <class Algo>
inline constexpr bool has_short_lanes = is_one_of<Algo, Bruck, Doubling, Halving, Ring>;

template <class Op, class Algo, class R>
void run_compiled_lanes(const Connections& connections, const CallArguments<R>& given) {
  if constexpr (has_short_lanes<Algo>) {
    if (ShortContext<Op, R>::fits(connections, given)) {
      ShortContext<Op, R> context{connections, given};
      return Algo::run(Op{}, context);
    }
  }
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
