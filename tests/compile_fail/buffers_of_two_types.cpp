// expect: ccl: send and recv must point to elements of one type
#include <ccl/ccl.hpp>

ccl::Result<void> call(const ccl::Collective<ccl::ReduceScatter>& scatter, const float* send,
                       double* recv) {
  return scatter(send, recv, 10, ccl::Sum{});
}
