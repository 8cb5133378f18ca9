// expect: ccl: counts and offsets are spans of ccl::Index with one number for each rank, such as a std::vector<ccl::Index>
#include <ccl/ccl.hpp>

#include <vector>

using Exchange = ccl::Collective<ccl::AllToAllV, ccl::Pairwise, ccl::Simple>;
ccl::Result<void> call(const Exchange& exchange, const float* send, float* recv,
                       const std::vector<int>& counts) {
  return exchange(send, counts, counts, recv, counts, counts);
}
