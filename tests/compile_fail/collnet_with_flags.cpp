// expect: ccl: a network reduces plain elements, and this protocol has flags between them; use Simple
#include <ccl/algo/collnet_direct.hpp>
#include <ccl/ccl.hpp>
#include <ccl/transport/collnet.hpp>

using Bad = ccl::Collective<ccl::AllReduce, ccl::CollNetDirect, ccl::LL128, ccl::CollNetTransport>;
static_assert(sizeof(Bad) > 0);
