// expect: ccl: several stages of this Pipeline reduce, in an order of their own, and the functor says that it is not commutative
#include <ccl/ccl.hpp>

struct First {
  static constexpr bool commutative = false;
  CCL_HD constexpr float operator()(float a, float) const { return a; }
};
using Bad =
    ccl::Pipeline<ccl::On<ccl::IntraNode, ccl::AllReduce>, ccl::On<ccl::InterNode, ccl::AllReduce>>;
ccl::Result<void> bad(const Bad& pipeline, float* data) {
  return pipeline(data, data, 10, First{});
}
