// expect: ccl: this algorithm addresses its peers' memory and would ignore this transport; use P2pTransport or DefaultTransport
#include <ccl/ccl.hpp>

using Bad = ccl::Collective<ccl::AllReduce, ccl::OneShot, ccl::LL, ccl::LoopbackTransport>;
static_assert(sizeof(Bad) > 0);
