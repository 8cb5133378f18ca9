// expect: ccl: this algorithm does not run this operation; see `supports` in its header for those that it does
#include <ccl/algo/collnet_chain.hpp>
#include <ccl/ccl.hpp>
#include <ccl/transport/collnet.hpp>

using Bad = ccl::Collective<ccl::Broadcast, ccl::CollNetChain, ccl::Simple, ccl::CollNetTransport>;
static_assert(sizeof(Bad) > 0);
