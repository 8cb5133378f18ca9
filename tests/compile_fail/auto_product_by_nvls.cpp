// expect: ccl: none of the candidates can run this reduction; see `supports_reduction`, `supports_elements` and `reorders` in the headers of their algorithms
#include <ccl/algo/nvls.hpp>
#include <ccl/ccl.hpp>

using ccl::Auto, ccl::AutoOf, ccl::Candidate;
using Listed = AutoOf<Candidate<ccl::Nvls, ccl::Simple>>;
using Sums = ccl::Collective<ccl::AllReduce, Listed, Auto, ccl::DefaultTransport>;
ccl::Result<void> product(const Sums& sums, float* data) {
  return sums(data, data, 1, ccl::Prod{});
}
