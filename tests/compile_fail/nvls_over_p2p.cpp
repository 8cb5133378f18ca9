// expect: ccl: this algorithm needs multicast memory, which no transport makes yet; use TwoShot or Direct
#include <ccl/algo/nvls.hpp>
#include <ccl/ccl.hpp>

using Bad = ccl::Collective<ccl::AllReduce, ccl::Nvls, ccl::Simple, ccl::P2pTransport>;
static_assert(sizeof(Bad) > 0);
