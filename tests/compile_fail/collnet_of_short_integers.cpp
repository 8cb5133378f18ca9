// expect: ccl: networks that reduce know the element types of NCCL alone (integers of 8, 32 and 64 bits, half, bfloat16, float, double, fp8); use Ring or Tree
#include <ccl/algo/collnet_chain.hpp>
#include <ccl/ccl.hpp>
#include <ccl/transport/collnet.hpp>

using Use = ccl::Collective<ccl::AllReduce, ccl::CollNetChain, ccl::Simple, ccl::CollNetTransport>;
ccl::Result<void> use(const Use& call, short* data) {
  return call(data, data, 10);
}
