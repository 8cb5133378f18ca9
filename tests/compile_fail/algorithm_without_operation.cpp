// expect: ccl: this algorithm does not run this operation; see `supports` in its header for those that it does
#include <ccl/ccl.hpp>

using Bad = ccl::Collective<ccl::AllToAll, ccl::Tree, ccl::Simple, ccl::ShmTransport>;
static_assert(sizeof(Bad) > 0);
