#include <ccl/algo/auto_tag.hpp>

#include <type_traits>

#include "support/catch.hpp"

using namespace ccl;

TEST_CASE("tags of automatic choices differ from algorithms") {
  struct Mine {};
  STATIC_REQUIRE(std::is_same_v<Auto, AutoOf<>>);
  STATIC_REQUIRE(detail::is_auto<Auto>);
  STATIC_REQUIRE(detail::is_auto<AutoOf<Mine>>);
  STATIC_REQUIRE(detail::is_auto<Deterministic>);
  STATIC_REQUIRE_FALSE(detail::is_auto<Mine>);
  STATIC_REQUIRE(detail::is_deterministic<Deterministic>);
  STATIC_REQUIRE_FALSE(detail::is_deterministic<Auto>);
}
