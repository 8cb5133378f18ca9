// expect: ccl: switches compare 16-bit floats and integers of 4 and 8 bytes, and no other elements; use TwoShot or Direct on one host, Ring or Tree on several
#include <ccl/ccl.hpp>

ccl::Result<void> bad(const ccl::Communicator& comm, float* data) {
  using Largest = ccl::Collective<ccl::AllReduce, ccl::Nvls, ccl::Simple, ccl::NvlsTransport>;
  CCL_TRY(auto largest, Largest::create(comm));
  return largest(data, data, 1, ccl::Max{});
}
