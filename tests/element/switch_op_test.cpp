#include <ccl/element/switch_op.hpp>

#include <cstdint>

#include "support/catch.hpp"

using namespace ccl;

namespace {
struct Larger {
  int operator()(int a, int b) const { return a < b ? b : a; }
};
template <class F, class... T>
constexpr bool of_all = (detail::SwitchOp<F, T>::possible && ...);
template <class F, class... T>
constexpr bool of_any = (detail::SwitchOp<F, T>::possible || ...);
using std::int32_t, std::int64_t, std::uint32_t, std::uint64_t;
}  // namespace

TEST_CASE("the reductions of switches") {
  CHECK(of_all<Sum, float, double, float16, bfloat16, int32_t, uint32_t, int64_t, uint64_t>);
  CHECK(of_all<Avg, float, float16, bfloat16, int32_t, uint32_t, int64_t, uint64_t>);
  CHECK(of_all<PreMulSum, float, float16, bfloat16, int32_t, int64_t>);
  CHECK(of_all<Min, float16, bfloat16, int32_t, uint32_t, int64_t, uint64_t>);
  CHECK(of_all<Max, float16, bfloat16, int32_t, uint32_t, int64_t, uint64_t>);
}

TEST_CASE("switches have no other reduction") {
  CHECK_FALSE(of_any<Min, float, double, char, float8_e4m3>);
  CHECK_FALSE(of_any<Max, float, double, char, float8_e4m3>);
  CHECK_FALSE(of_any<Sum, std::int8_t, std::uint8_t, short, bool, float8_e5m2>);
  CHECK_FALSE(of_any<Prod, float, int32_t, uint64_t, bfloat16>);
  CHECK_FALSE(of_any<Larger, int32_t>);
}
