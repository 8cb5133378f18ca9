// expect: ccl: recv must point to elements of the type that this Pipeline leaves: what its last Map returns, that of send if it has none
#include <ccl/ccl.hpp>

using Bad = ccl::Pipeline<ccl::Map<ccl::Convert<ccl::bfloat16>>,
                          ccl::On<ccl::World, ccl::AllReduce, ccl::Ring, ccl::Simple>>;
ccl::Result<void> bad(const Bad& pipeline, float* data) {
  return pipeline(data, data, 10, ccl::Sum{});
}
