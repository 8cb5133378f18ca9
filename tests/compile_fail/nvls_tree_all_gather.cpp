// expect: ccl: these levels do not run this operation; see Hierarchical::supports
#include <ccl/algo/nvls_tree.hpp>
#include <ccl/ccl.hpp>

using Bad = ccl::Collective<ccl::AllGather, ccl::NvlsTree, ccl::Simple, ccl::DefaultTransport>;
static_assert(sizeof(Bad) > 0);
