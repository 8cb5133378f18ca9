// expect: ccl: multicast stores land in pieces, so no packet can carry a flag; use Simple
#include <ccl/ccl.hpp>

using Bad = ccl::Collective<ccl::AllReduce, ccl::Nvls, ccl::LL, ccl::NvlsTransport>;
static_assert(sizeof(Bad) > 0);
