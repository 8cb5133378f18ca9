#include <ccl/algo/halving.hpp>
#include <ccl/algo/ordered_chain.hpp>
#include <ccl/algo/pat.hpp>

#include "launch/lanes.hpp"

namespace ccl {
CCL_MOVING_LANES(AllGather, Pat)
CCL_MOVING_LANES(Broadcast, Pat)
CCL_REDUCING_LANES(Reduce, Pat)
CCL_REDUCING_LANES(ReduceScatter, Halving)
CCL_REDUCING_LANES(ReduceScatter, OrderedChain)
CCL_REDUCING_LANES(ReduceScatter, Pat)
}  // namespace ccl
