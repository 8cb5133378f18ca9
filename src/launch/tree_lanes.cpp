#include <ccl/algo/one_tree.hpp>
#include <ccl/algo/ordered_tree.hpp>
#include <ccl/algo/tree.hpp>

#include "launch/lanes.hpp"

namespace ccl {
CCL_MOVING_LANES(Broadcast, Tree)
CCL_REDUCING_LANES(AllReduce, OneTree)
CCL_REDUCING_LANES(AllReduce, OrderedTree)
CCL_REDUCING_LANES(AllReduce, Tree)
CCL_REDUCING_LANES(Reduce, OrderedTree)
CCL_REDUCING_LANES(Reduce, Tree)
}  // namespace ccl
