// expect: ccl: this algorithm needs multicast memory, which this transport does not make; use NvlsTransport or DefaultTransport
#include <ccl/algo/nvls.hpp>
#include <ccl/ccl.hpp>

using Bad = ccl::Collective<ccl::AllReduce, ccl::Nvls, ccl::Simple, ccl::P2pTransport>;
static_assert(sizeof(Bad) > 0);
