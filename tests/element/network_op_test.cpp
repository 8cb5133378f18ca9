#include <ccl/algo/collnet_chain.hpp>
#include <ccl/algo/collnet_direct.hpp>
#include <ccl/element/network_op.hpp>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {
struct Larger {
  float operator()(float a, float b) const { return a < b ? b : a; }
};
struct OwnSum : Sum {};

template <class... Fs>
constexpr bool both_take =
    (... && (CollNetChain::supports_reduction<Fs> && CollNetDirect::supports_reduction<Fs>));
template <class... Fs>
constexpr bool one_takes =
    (... || (CollNetChain::supports_reduction<Fs> || CollNetDirect::supports_reduction<Fs>));
}  // namespace

TEST_CASE("reductions of networks have the numbers of NCCL's plug-ins") {
  CHECK(int(network_op<Sum>()) == 0);
  CHECK(int(network_op<Prod>()) == 1);
  CHECK(int(network_op<Max>()) == 2);
  CHECK(int(network_op<Min>()) == 3);
}

TEST_CASE("functors that scale before or divide afterwards are sums of networks") {
  CHECK(network_op<Avg>() == NetworkOp::sum);
  CHECK(network_op<PreMulSum>() == NetworkOp::sum);
  CHECK(network_op<AvgBegun>() == NetworkOp::sum);
  CHECK(network_op<AvgEnded>() == NetworkOp::sum);
}

TEST_CASE("CollNet algorithms take the reductions of networks, and no others") {
  CHECK(both_take<Sum, Prod, Min, Max, Avg, PreMulSum, AvgBegun, AvgEnded>);
  CHECK_FALSE(one_takes<Larger, OwnSum>);
  CHECK(network_op<Larger>() == NetworkOp::none);
  CHECK(network_op<OwnSum>() == NetworkOp::none);
}
