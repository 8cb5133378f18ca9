// expect: ccl: networks that reduce know the element types of NCCL alone (integers of 8, 32 and 64 bits, half, bfloat16, float, double, fp8); use Ring or Tree
#include <ccl/algo/collnet_direct.hpp>
#include <ccl/ccl.hpp>
#include <ccl/transport/collnet.hpp>

struct Complex {
  float re, im;
  friend Complex operator+(const Complex& a, const Complex& b) {
    return {a.re + b.re, a.im + b.im};
  }
};
using Use = ccl::Collective<ccl::AllReduce, ccl::CollNetDirect, ccl::Simple, ccl::CollNetTransport>;
ccl::Result<void> use(const Use& call, Complex* data) {
  return call(data, data, 10);
}
