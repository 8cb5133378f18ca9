// expect: ccl: this algorithm needs a network that reduces and would ignore this transport; use CollNetTransport or DefaultTransport
#include <ccl/algo/collnet_chain.hpp>
#include <ccl/ccl.hpp>

using Bad = ccl::Collective<ccl::AllReduce, ccl::CollNetChain, ccl::Simple, ccl::ShmTransport>;
static_assert(sizeof(Bad) > 0);
