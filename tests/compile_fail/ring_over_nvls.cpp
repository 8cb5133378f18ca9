// expect: ccl: this transport makes multicast memory and connects no wires; use Nvls, or DefaultTransport
#include <ccl/ccl.hpp>

using Bad = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::Simple, ccl::NvlsTransport>;
static_assert(sizeof(Bad) > 0);
