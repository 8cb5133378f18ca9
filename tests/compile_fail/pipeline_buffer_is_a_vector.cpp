// expect: ccl: buffers are pointers to elements, such as data() of a std::vector; one that this rank does not use is a null pointer of that type
#include <ccl/ccl.hpp>

#include <vector>

using Sums = ccl::Pipeline<ccl::On<ccl::IntraNode, ccl::AllReduce, ccl::Ring, ccl::Simple>,
                           ccl::On<ccl::InterNode, ccl::AllReduce, ccl::Ring, ccl::Simple>>;
ccl::Result<void> call(const Sums& sums, std::vector<float>& data) {
  return sums(data, data, 10, ccl::Sum{});
}
