// expect: ccl: a stage of Pipeline is On<Level, Op, ...> or Map<Functor>
#include <ccl/ccl.hpp>

using Bad = ccl::Pipeline<ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::Simple>>;
static_assert(sizeof(Bad) > 0);
