#include <ccl/detail/numeric/network_step.hpp>
#include <ccl/detail/numeric/reduction.hpp>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {
struct Own {
  int value;
};
struct Larger {
  float operator()(float a, float b) const { return a < b ? b : a; }
};
}  // namespace

// By NCCL's numbers.
static_assert(network_type<signed char>() == 0 && network_type<unsigned char>() == 1);
static_assert(network_type<int>() == 2 && network_type<unsigned>() == 3);
static_assert(network_type<long long>() == 4 && network_type<unsigned long>() == 5);
static_assert(network_type<float16>() == 6 && network_type<float>() == 7);
static_assert(network_type<double>() == 8 && network_type<bfloat16>() == 9);
static_assert(network_type<float8_e4m3>() == 10 && network_type<float8_e5m2>() == 11);
static_assert(network_type<short>() == -1 && network_type<Own>() == -1);
static_assert(network_tag<Reduction<Sum, short>> == 0 &&
              network_tag<Reduction<Larger, float>> == 0);
static_assert(network_tag<Reduction<Sum, float>> != 0);

TEST_CASE("the size of a step names its reduction") {
  const Word size = network_tag<Reduction<Min, double>> | 512;
  const NetworkStep step = NetworkStep::of(size);
  CHECK(step.type == 8);
  CHECK(step.op == NetworkOp::min);
  CHECK(step.bytes == 512);
  CHECK(step.move == NetworkMove::all_reduce);
  CHECK(size < Word{1} << 63);  // the highest bit marks lent memory: see ZeroCopy
}

TEST_CASE("the size of a step names the host whose part it is") {
  for (const int host : {0, 1, NetworkStep::max_hosts - 1}) {
    const Word part = NetworkStep::window(NetworkMove::reduce_scatter, host);
    const Word size = part | network_tag<Reduction<Min, float8_e5m2>> | (Word{1} << 35);
    const NetworkStep step = NetworkStep::of(size);
    CHECK(step.move == NetworkMove::reduce_scatter);
    CHECK(step.host == host);
    CHECK(step.type == 11);
    CHECK(step.op == NetworkOp::min);
    CHECK(step.bytes == Index{1} << 35);
    CHECK(size < Word{1} << 63);
  }
  const NetworkStep gather = NetworkStep::of(NetworkStep::window(NetworkMove::all_gather, 3) | 7);
  CHECK(gather.move == NetworkMove::all_gather);
  CHECK(gather.host == 3);
  CHECK(gather.bytes == 7);
}
