#include <ccl/algo/collnet_chain.hpp>

#include "launch/lanes.hpp"

namespace ccl {
CCL_REDUCING_LANES(AllReduce, CollNetChain)
}  // namespace ccl
