// expect: ccl: CollNetTransport carries sums between hosts and no messages; use CollNetChain or CollNetDirect over it, or DefaultTransport
#include <ccl/ccl.hpp>
#include <ccl/transport/collnet.hpp>

using Bad = ccl::Collective<ccl::SendRecv, ccl::Pairwise, ccl::Simple, ccl::CollNetTransport>;
static_assert(sizeof(Bad) > 0);
