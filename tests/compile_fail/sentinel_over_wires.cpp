// expect: ccl: this protocol carries reductions over peers' memory and nothing else; use LL or LL128, or OneShot or TwoShot
#include <ccl/ccl.hpp>

using Bad = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::Sentinel, ccl::DefaultTransport>;
static_assert(sizeof(Bad) > 0);
