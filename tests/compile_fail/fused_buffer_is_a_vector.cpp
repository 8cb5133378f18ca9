// expect: ccl: buffers are pointers to elements, such as data() of a std::vector; one that this rank does not use is a null pointer of that type
#include <ccl/ccl.hpp>

#include <vector>

using Sum = ccl::Collective<ccl::AllReduce, ccl::OneShot, ccl::LL128, ccl::P2pTransport>;
using Rows = ccl::Fused<ccl::AsIs<float>, Sum, ccl::StoreRows<float>>;
ccl::Result<void> call(const Rows& rows, std::vector<float>& data, ccl::StoreRows<float> store) {
  return rows(data, 4, 128, store);
}
