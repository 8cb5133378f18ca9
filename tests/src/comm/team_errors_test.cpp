// Texts of wrong calls in a program's kernels: each names what was given and its limit.
#include "comm/team_errors.hpp"

#include <string>

#include "support/catch.hpp"

using namespace ccl;
using Why = detail::LaneFailure::Why;

namespace {
Error error_of(Why why) {
  detail::LaneFailure found;
  found.peer = 3;
  found.why = why;
  found.count = 1234;
  found.stride = 567;
  return detail::error_of_team(found);
}
}  // namespace

TEST_CASE("every wrong call of a kernel has a text of its own with both numbers") {
  std::string all;
  for (Word why = Why::no_block; why <= Why::not_near; ++why) {
    INFO(why);
    REQUIRE(detail::is_of_team(why));
    const Error error = error_of(Why(why));
    CHECK(error.code == Errc::invalid_usage);
    CHECK(error.what.find("1234") != std::string::npos);
    CHECK(error.what.find("567") != std::string::npos);
    CHECK(error.what.find("; ") != std::string::npos);  // what would help
    CHECK(all.find(error.what) == std::string::npos);
    all += error.what;
  }
  CHECK_FALSE(detail::is_of_team(Why::late));
  CHECK_FALSE(detail::is_of_team(Why::other_call));
}

TEST_CASE("a put outside a window names the rank of the window") {
  CHECK(error_of(Why::outside_window).peer == 2);
  CHECK(error_of(Why::no_value).peer == -1);
}
