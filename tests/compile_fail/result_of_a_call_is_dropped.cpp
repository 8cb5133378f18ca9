// expect: ignoring return value of
#include <ccl/ccl.hpp>

void call(const ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::Simple>& sum, float* data) {
  sum(data, data, 10, ccl::Sum{});
}
