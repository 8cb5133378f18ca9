#include <ccl/algo/collnet_chain.hpp>
#include <ccl/algo/collnet_direct.hpp>

#include "launch/lanes.hpp"

namespace ccl {
CCL_MOVING_LANES(AllGather, CollNetDirect)
CCL_REDUCING_LANES(AllReduce, CollNetChain)
}  // namespace ccl
