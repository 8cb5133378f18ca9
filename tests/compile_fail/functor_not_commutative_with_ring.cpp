// expect: ccl: this algorithm reduces the ranks in an order of its own, and the functor says that it is not commutative
#include <ccl/ccl.hpp>

struct Concatenate {
  static constexpr bool commutative = false;
  float operator()(float a, float b) const { return a * 10 + b; }
};
using Use = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::Simple, ccl::ShmTransport>;
ccl::Result<void> use(const Use& call, float* data) {
  return call(data, data, 10, Concatenate{});
}
