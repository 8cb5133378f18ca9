// expect: ccl: the second argument of Collective must be an algorithm (Ring, Tree, ..., or one that states the operations that it `supports`); protocol and transport follow it
#include <ccl/ccl.hpp>

using Bad = ccl::Collective<ccl::AllReduce, ccl::Simple>;
static_assert(sizeof(Bad) > 0);
