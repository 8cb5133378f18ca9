// expect: ccl: the receive buffer must not be const, because the call writes into it
#include <ccl/ccl.hpp>

ccl::Result<void> call(const ccl::Collective<ccl::AllGather>& all_gather, const float* data) {
  return all_gather(data, data, 10);
}
