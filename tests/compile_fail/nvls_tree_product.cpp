// expect: ccl: switches have Sum, Avg, PreMulSum, Min and Max and no other functor; use TwoShot or Direct on one host, Ring or Tree on several
#include <ccl/algo/nvls_tree.hpp>
#include <ccl/ccl.hpp>

ccl::Result<void> bad(const ccl::Communicator& comm, float* data) {
  using Product =
      ccl::Collective<ccl::AllReduce, ccl::NvlsTree, ccl::Simple, ccl::DefaultTransport>;
  CCL_TRY(auto product, Product::create(comm));
  return product(data, data, 1, ccl::Prod{});
}
