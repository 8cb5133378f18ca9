// expect: ccl: the first argument of Collective must be an operation (AllReduce, AllGather, Broadcast, ...); algorithm, protocol and transport follow in this order
#include <ccl/ccl.hpp>

using Bad = ccl::Collective<ccl::Sum>;
static_assert(sizeof(Bad) > 0);
