// expect: ccl: several stages of this Pipeline reduce, and each would cut an average of integers; reduce by Sum, and divide in a Map
#include <ccl/ccl.hpp>

using Bad = ccl::Pipeline<ccl::On<ccl::IntraNode, ccl::AllReduce, ccl::Ring, ccl::Simple>,
                          ccl::On<ccl::InterNode, ccl::AllReduce, ccl::Ring, ccl::Simple>>;
ccl::Result<void> bad(const Bad& pipeline, int* data) {
  return pipeline(data, data, 10, ccl::Avg{});
}
