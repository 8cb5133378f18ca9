#include <ccl/element/reduce_op.hpp>

#include <cmath>
#include <limits>
#include <memory>

#include "support/catch.hpp"

using namespace ccl;

TEMPLATE_TEST_CASE("integers of every width wrap", "", std::int8_t, std::uint8_t, std::int16_t,
                   std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t) {
  using T = TestType;
  using Wide = unsigned __int128;  // what is right modulo 2^128 is right modulo 2^n
  const T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  for (const T a : {least, T(least + 1), T(0), T(1), T(77), T(most / 2), T(most - 1), most}) {
    for (const T b : {least, T(least + 1), T(0), T(1), T(77), T(most / 2), T(most - 1), most}) {
      CHECK(Sum{}(a, b) == T(Wide(a) + Wide(b)));
      CHECK(Prod{}(a, b) == T(Wide(a) * Wide(b)));
      CHECK(Min{}(a, b) == std::min(a, b));
      CHECK(Max{}(a, b) == std::max(a, b));
      CHECK(Avg{}(a, b) == Sum{}(a, b));
    }
  }
}

TEMPLATE_TEST_CASE("a NaN loses to any number", "", float, double) {
  const TestType nan = std::numeric_limits<TestType>::quiet_NaN();
  const TestType infinity = std::numeric_limits<TestType>::infinity();
  for (const TestType x : {TestType(-3), TestType(0), TestType(2), infinity, -infinity}) {
    CHECK(Min{}(x, nan) == x);
    CHECK(Min{}(nan, x) == x);
    CHECK(Max{}(x, nan) == x);
    CHECK(Max{}(nan, x) == x);
    for (const TestType y : {TestType(-3), TestType(0), TestType(2), infinity, -infinity}) {
      CHECK(Min{}(x, y) == std::fmin(x, y));
      CHECK(Max{}(x, y) == std::fmax(x, y));
    }
  }
  CHECK(std::isnan(Min{}(nan, nan)));
  CHECK(std::isnan(Max{}(nan, nan)));
  CHECK(std::isnan(Sum{}(nan, TestType(1))));
}

TEST_CASE("PreMulSum gives its scalar in the type asked for") {
  CHECK(PreMulSum(0.5).value<float>() == 0.5f);
  CHECK(PreMulSum(2.9).value<int>() == 2);
  CHECK(PreMulSum(-2.9).value<std::int8_t>() == -2);
  CHECK(PreMulSum(3).value<double>() == 3.0);
  CHECK(PreMulSum((std::int64_t{1} << 62) + 1).value<std::int64_t>() ==
        (std::int64_t{1} << 62) + 1);
  CHECK(PreMulSum(~std::uint64_t{0}).value<std::uint64_t>() == ~std::uint64_t{0});
  const float scalar = 4;
  CHECK(PreMulSum::at(&scalar).in_memory());
  CHECK(PreMulSum::at(&scalar).address() == &scalar);
  CHECK_FALSE(PreMulSum(4).in_memory());
}

namespace {
struct Vec {
  float x, y;
};
struct LastWins {
  static constexpr bool commutative = false;
  Vec operator()(Vec, Vec b) const { return b; }
};
struct WeightedSum {
  float weight;
  float operator()(float a, float b) const { return a + weight * b; }
};
struct NotConst {
  float operator()(float a, float) { return a; }
};
struct OneArgument {
  float operator()(float a) const { return a; }
};
struct ReturnsNothing {
  void operator()(float, float) const {}
};
struct OwnsMemory {
  std::shared_ptr<float> weight;
  float operator()(float a, float b) const { return a + *weight * b; }
};
}  // namespace

TEST_CASE("the concept takes any copyable functor of two, and refuses the rest") {
  STATIC_REQUIRE(ReduceOp<Sum, float>);
  STATIC_REQUIRE(ReduceOp<PreMulSum, std::int8_t>);
  STATIC_REQUIRE(ReduceOp<WeightedSum, float>);
  STATIC_REQUIRE(ReduceOp<LastWins, Vec>);
  STATIC_REQUIRE_FALSE(ReduceOp<LastWins, float>);
  STATIC_REQUIRE_FALSE(ReduceOp<NotConst, float>);
  STATIC_REQUIRE_FALSE(ReduceOp<OneArgument, float>);
  STATIC_REQUIRE_FALSE(ReduceOp<ReturnsNothing, float>);
  STATIC_REQUIRE_FALSE(ReduceOp<OwnsMemory, float>);
  STATIC_REQUIRE(is_commutative<Sum>);
  STATIC_REQUIRE(is_commutative<WeightedSum>);
  STATIC_REQUIRE_FALSE(is_commutative<LastWins>);
}
