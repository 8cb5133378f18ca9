// expect: ccl: this protocol cannot carry this reduction of these elements; see `supports_reduction` in its header
#include <ccl/ccl.hpp>

using AllReduce = ccl::Collective<ccl::AllReduce, ccl::TwoShot, ccl::Sentinel>;
ccl::Result<void> sum(const AllReduce& all_reduce, const int* send, int* recv) {
  return all_reduce(send, recv, 1);
}
