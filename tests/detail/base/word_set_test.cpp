#include <ccl/detail/base/word_set.hpp>

#include "support/catch.hpp"

using namespace ccl;

namespace {
template <int Count>
void holds_what_was_inserted() {
  detail::WordSet<Count> set;
  CHECK(set.empty());
  for (int n = 0; n < Count; n += 3) set.insert(n);
  CHECK_FALSE(set.empty());
  for (int n = 0; n < Count; ++n) CHECK(set.contains(n) == (n % 3 == 0));
}
}  // namespace

TEST_CASE("a set contains what was inserted, in one word or several") {
  holds_what_was_inserted<16>();
  holds_what_was_inserted<64>();
  holds_what_was_inserted<72>();
  holds_what_was_inserted<144>();
  STATIC_REQUIRE(sizeof(detail::WordSet<16>) == 4);
  STATIC_REQUIRE(sizeof(detail::WordSet<144>) == 24);
}
