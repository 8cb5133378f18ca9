// Functor that cannot be vectorized, and an exchange over peer memory. A compiler with all warnings
// enabled must not warn about them.
#include <ccl/algo/direct.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>

double elsewhere(double a, double b);
struct Elsewhere {
  double operator()(double a, double b) const { return elsewhere(a, b); }
};
ccl::Result<void> gather(
    const ccl::Collective<ccl::AllGather, ccl::Direct, ccl::Simple>& all_gather, const float* send,
    float* recv, ccl::Index count) {
  return all_gather(send, recv, count);
}
ccl::Result<void> sum(const ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::Simple>& all_reduce,
                      double* data, ccl::Index count) {
  return all_reduce(data, data, count, Elsewhere{});
}
