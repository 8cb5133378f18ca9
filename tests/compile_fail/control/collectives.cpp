#include <ccl/ccl.hpp>

// Transports and functors of the failing cases, complete and used correctly.
struct Mine : ccl::ShmTransport {
  static constexpr const char* name = "mine";
};
struct Concatenate {
  static constexpr bool commutative = true;
  float operator()(float a, float b) const { return a * 10 + b; }
};
using Use = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::LL128, Mine>;
ccl::Result<void> use(const Use& call, float* data) {
  return call(data, data, 10, Concatenate{});
}
