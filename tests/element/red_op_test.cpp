#include <ccl/element/red_op.hpp>
#include <ccl/element/reduce_op.hpp>

#include "support/catch.hpp"

using namespace ccl;

namespace {
struct Scaled {
  static constexpr const char* name = "scaled";
  explicit Scaled(int by) : factor{by} {}
  int factor;
};
struct OtherScaled {
  static constexpr const char* name = "scaled";
  int factor = 1;
};
}  // namespace

TEST_CASE("a reduction that is named gives a functor of its default value") {
  const RedOp op = "sum";
  CHECK(op.name() == "sum");
  CHECK(op.as<Sum>().has_value());
  CHECK_FALSE(op.as<Scaled>().has_value());  // no default constructor
}

TEST_CASE("a reduction made of a functor keeps its value") {
  const RedOp op = Scaled{3};
  CHECK(op.name() == "scaled");
  const auto functor = op.as<Scaled>();
  REQUIRE(functor.has_value());
  CHECK(functor->factor == 3);
}

TEST_CASE("a functor of another type with the same name does not get the value") {
  const RedOp op = Scaled{3};
  CHECK_FALSE(op.as<OtherScaled>().has_value());
}
