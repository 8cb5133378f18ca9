#include <ccl/algo/auto_tag.hpp>

#include <type_traits>

#include "support/catch.hpp"

using namespace ccl;

TEST_CASE("tags of automatic choices differ from algorithms") {
  struct Mine {};
  STATIC_REQUIRE_FALSE(std::is_same_v<Auto, AutoOf<>>);  // an empty list is a mistake
  STATIC_REQUIRE_FALSE(std::is_same_v<Deterministic, DeterministicOf<>>);
  STATIC_REQUIRE(detail::is_auto<Auto>);
  STATIC_REQUIRE(detail::is_auto<AutoOf<Mine>>);
  STATIC_REQUIRE(detail::is_auto<Deterministic>);
  STATIC_REQUIRE(detail::is_auto<DeterministicOf<Mine>>);
  STATIC_REQUIRE_FALSE(detail::is_auto<Mine>);
  STATIC_REQUIRE(detail::is_deterministic<Deterministic>);
  STATIC_REQUIRE(detail::is_deterministic<DeterministicOf<Mine>>);
  STATIC_REQUIRE_FALSE(detail::is_deterministic<Auto>);
  STATIC_REQUIRE_FALSE(detail::is_deterministic<AutoOf<Mine>>);
}
