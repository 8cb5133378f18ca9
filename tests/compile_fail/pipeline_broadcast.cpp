// expect: ccl: the stages of a Pipeline run AllReduce, ReduceScatter, AllGather or AllToAll; what has a root or counts of its own is a call beside it
#include <ccl/ccl.hpp>

using Bad = ccl::Pipeline<ccl::On<ccl::IntraNode, ccl::Reduce, ccl::Ring, ccl::Simple>,
                          ccl::On<ccl::InterNode, ccl::AllReduce, ccl::Ring, ccl::Simple>>;
static_assert(sizeof(Bad) > 0);
