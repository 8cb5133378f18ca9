// expect: ccl: the number of elements follows the two buffers
#include <ccl/ccl.hpp>

ccl::Result<void> call(const ccl::Collective<ccl::AllReduce>& sum, const float* send, float* recv) {
  return sum(send, recv, ccl::Sum{});
}
