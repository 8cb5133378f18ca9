// expect: ccl: this algorithm does not run this operation; see `supports` in its header for those that it does
#include <ccl/ccl.hpp>

using Sum = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::LL128, ccl::P2pTransport>;
using Bad = ccl::Fused<ccl::AsIs<float>, Sum, ccl::StoreRows<float>>;
static_assert(sizeof(Bad) > 0);
