// expect: ccl: multicast memory ends at the host, so the level between hosts cannot have it; put Nvls inside, or use NvlsTree
#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/nvls.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/proto/simple.hpp>

using Bad = ccl::Hierarchical<ccl::Ring, ccl::With<ccl::Nvls, ccl::Simple>>;
static_assert(sizeof(Bad) > 0);
