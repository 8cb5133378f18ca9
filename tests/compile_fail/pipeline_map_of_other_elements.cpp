// expect: ccl: a Map's functor must be callable as U(T) const with the elements that come to it from the stage before
#include <ccl/ccl.hpp>

struct Pair {
  float a, b;
};
struct First {
  float operator()(const Pair& p) const { return p.a; }
};
using Bad =
    ccl::Pipeline<ccl::Map<First>, ccl::On<ccl::World, ccl::AllReduce, ccl::Ring, ccl::Simple>>;
ccl::Result<void> bad(const Bad& pipeline, float* data) {
  return pipeline(data, data, 10, ccl::Sum{});
}
