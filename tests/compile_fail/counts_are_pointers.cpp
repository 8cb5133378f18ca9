// expect: ccl: counts and offsets are spans of ccl::Index with one number for each rank, such as a std::vector<ccl::Index>
#include <ccl/ccl.hpp>

using Exchange = ccl::Collective<ccl::AllToAllV>;
ccl::Result<void> call(const Exchange& exchange, const float* send, float* recv,
                       const ccl::Index* counts, const ccl::Index* offsets) {
  return exchange(send, counts, offsets, recv, counts, offsets);
}
