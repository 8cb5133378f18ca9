#include <ccl/algo/bruck.hpp>
#include <ccl/algo/doubling.hpp>
#include <ccl/algo/ring.hpp>

#include "launch/lanes.hpp"

namespace ccl {
CCL_MOVING_LANES(AllGather, Bruck)
CCL_MOVING_LANES(AllGather, Doubling)
CCL_MOVING_LANES(AllGather, Ring)
CCL_MOVING_LANES(Broadcast, Ring)
CCL_REDUCING_LANES(AllReduce, Doubling)
CCL_REDUCING_LANES(AllReduce, Ring)
CCL_REDUCING_LANES(Reduce, Ring)
CCL_REDUCING_LANES(ReduceScatter, Ring)
}  // namespace ccl
