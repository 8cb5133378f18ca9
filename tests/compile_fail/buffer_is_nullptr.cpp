// expect: ccl: buffers are pointers to elements, such as data() of a std::vector; one that this rank does not use is a null pointer of that type
#include <ccl/ccl.hpp>

ccl::Result<void> call(const ccl::Collective<ccl::Gather>& gather, float* data) {
  return gather(data, nullptr, 10, 0);
}
