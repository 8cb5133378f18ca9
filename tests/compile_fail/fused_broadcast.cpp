// expect: ccl: Fused takes Collective<AllReduce, OneShot or TwoShot, LL or LL128, a transport>
#include <ccl/ccl.hpp>

using Sum = ccl::Collective<ccl::Broadcast, ccl::OneShot, ccl::LL128, ccl::P2pTransport>;
using Bad = ccl::Fused<ccl::AsIs<float>, Sum, ccl::StoreRows<float>>;
static_assert(sizeof(Bad) > 0);
