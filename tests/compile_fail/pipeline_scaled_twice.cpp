// expect: ccl: PreMulSum multiplies each rank's own data once, and several stages of this Pipeline reduce; multiply in a Map, and reduce by Sum
#include <ccl/ccl.hpp>

using Bad = ccl::Pipeline<ccl::On<ccl::IntraNode, ccl::AllReduce, ccl::Ring, ccl::Simple>,
                          ccl::On<ccl::InterNode, ccl::AllReduce, ccl::Ring, ccl::Simple>>;
ccl::Result<void> bad(const Bad& pipeline, float* data) {
  return pipeline(data, data, 10, ccl::PreMulSum{2.0});
}
