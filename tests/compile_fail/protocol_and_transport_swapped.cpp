// expect: ccl: the third argument of Collective must be a protocol (Simple, LL, LL128, or a model of Protocol)
#include <ccl/ccl.hpp>

using Bad = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::ShmTransport, ccl::Simple>;
static_assert(sizeof(Bad) > 0);
