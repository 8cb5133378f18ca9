#include "base/call_bounds.hpp"

#include <thread>

#include "support/catch.hpp"

using ccl::detail::CallBounds;
using ccl::detail::ChannelBounds;

TEST_CASE("bounds of a call count for its thread, and end with it") {
  CHECK(CallBounds::within(7) == 7);
  {
    const CallBounds outer{ChannelBounds{3, 5}};
    CHECK(CallBounds::within(1) == 3);
    CHECK(CallBounds::within(4) == 4);
    CHECK(CallBounds::within(9) == 5);
    CHECK(CallBounds::at_most(2) == 2);
    CHECK(CallBounds::at_most(32) == 5);
    {
      const CallBounds inner{ChannelBounds{8, 2}};  // the upper one has precedence
      CHECK(CallBounds::within(5) == 2);
    }
    CHECK(CallBounds::within(9) == 5);
    int other = 0;
    std::thread{[&] { other = CallBounds::within(9); }}.join();
    CHECK(other == 9);
  }
  CHECK(CallBounds::at_most(32) == 32);
}
