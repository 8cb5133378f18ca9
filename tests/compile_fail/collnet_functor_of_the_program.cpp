// expect: ccl: this algorithm cannot run this reduction; see `supports_reduction` in its header
#include <ccl/algo/collnet_chain.hpp>
#include <ccl/ccl.hpp>
#include <ccl/transport/collnet.hpp>

struct Larger {
  float operator()(float a, float b) const { return a < b ? b : a; }
};
using Use = ccl::Collective<ccl::AllReduce, ccl::CollNetChain, ccl::Simple, ccl::CollNetTransport>;
ccl::Result<void> use(const Use& call, float* data) {
  return call(data, data, 10, Larger{});
}
