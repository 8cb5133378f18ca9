// expect: ccl: Hierarchical has two levels, inside a host and between hosts; a level is an algorithm, or With<Algo, Proto>
#include <ccl/ccl.hpp>

using Three = ccl::Hierarchical<ccl::Ring, ccl::Hierarchical<ccl::Ring, ccl::Tree>>;
using Bad = ccl::Collective<ccl::AllReduce, Three, ccl::Simple>;
static_assert(sizeof(Bad) > 0);
