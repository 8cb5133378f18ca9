// expect: ccl: an AllGather of this Pipeline is on another level than the ReduceScatter before it, which would leave the shares in another order; gather what was scattered last first
#include <ccl/ccl.hpp>

using Bad = ccl::Pipeline<ccl::On<ccl::IntraNode, ccl::ReduceScatter, ccl::Ring, ccl::Simple>,
                          ccl::On<ccl::InterNode, ccl::ReduceScatter, ccl::Ring, ccl::Simple>,
                          ccl::On<ccl::IntraNode, ccl::AllGather, ccl::Ring, ccl::Simple>,
                          ccl::On<ccl::InterNode, ccl::AllGather, ccl::Ring, ccl::Simple>>;
static_assert(sizeof(Bad) > 0);
