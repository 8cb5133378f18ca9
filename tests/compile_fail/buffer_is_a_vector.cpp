// expect: ccl: buffers are pointers to elements, such as data() of a std::vector; one that this rank does not use is a null pointer of that type
#include <ccl/ccl.hpp>

#include <vector>

using Sum = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::Simple>;
ccl::Result<void> call(const Sum& sum, std::vector<float>& data) {
  return sum(data.data(), data, 10, ccl::Sum{});
}
