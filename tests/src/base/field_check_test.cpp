#include "base/field_check.hpp"

#include <cstdint>
#include <limits>

#include "support/catch.hpp"

using ccl::detail::FieldCheck;

TEST_CASE("the first field that does not fit is named, with its value and those that would fit") {
  CHECK(FieldCheck{}.in_range("rank", 3, 0, 3).in_range("port", 1, 1, 65535).good());
  CHECK(FieldCheck{}.in_range("rank", 4, 0, 3).why() == "rank is 4, not from 0 to 3");
  CHECK(FieldCheck{}.in_range("rank", -1, 2, 2).why() == "rank is -1, not 2");
  FieldCheck check;
  check.in_range("a", 9, 0, 1).in_range("b", 8, 0, 1);
  CHECK(check.why() == "a is 9, not from 0 to 1");
}

TEST_CASE("no value of any width passes for another one") {
  constexpr auto huge = std::numeric_limits<std::uint64_t>::max();
  CHECK(FieldCheck{}.in_range("n", huge, -1, 5).why() ==
        "n is 18446744073709551615, not from -1 to 5");
  CHECK_FALSE(FieldCheck{}.in_range("n", std::uint32_t(~0u), -1, 5).good());
  CHECK_FALSE(FieldCheck{}.in_range("n", std::numeric_limits<std::int64_t>::min(), 0, 5).good());
  CHECK(FieldCheck{}.in_range("n", std::int64_t{-1}, -1, 5).good());
}

TEST_CASE("flags, texts and parts") {
  CHECK(FieldCheck{}.flag("flag", 0).flag("flag", 1).good());
  CHECK(FieldCheck{}.flag("flag", 2).why() == "flag is 2, not from 0 to 1");
  CHECK_FALSE(FieldCheck{}.flag("flag", -1).good());
  char name[4] = {'a', 'b', 'c', 0};
  CHECK(FieldCheck{}.text("name", name).good());
  name[3] = 'd';
  CHECK(FieldCheck{}.text("name", name).why() == "name has no end within its 4 bytes");
  CHECK(FieldCheck{}.part("part", "").good());
  CHECK(FieldCheck{}.part("part", "rank is 4").why() == "part: rank is 4");
  CHECK(FieldCheck{}.require(false, "it is late").why() == "it is late");
}
