// expect: ccl: the first argument of On is a level: World, IntraNode or InterNode
#include <ccl/ccl.hpp>

using Bad = ccl::Pipeline<ccl::On<ccl::AllReduce, ccl::IntraNode, ccl::Ring, ccl::Simple>>;
static_assert(sizeof(Bad) > 0);
