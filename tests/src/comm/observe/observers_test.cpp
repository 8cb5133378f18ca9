#include "comm/observe/observers.hpp"

#include <ccl/comm/communicator.hpp>

#include "comm/state.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("a wait that ends after another rank has named the late one has that rank's error") {
  auto comms = Communicator::create_all(2);
  REQUIRE(comms);
  detail::CommState& state = *detail::Access::state((*comms)[0]);
  state.status.set({Errc::timed_out, "rank 1 has not called operation 7", -1, 1});
  const Result<void> ended =
      state.rendezvous.after_rendezvous(fail(Errc::timed_out, "no progress for 2 s in the check"));
  REQUIRE_FALSE(ended);
  INFO(ended.error().message());
  CHECK(ended.error().code == Errc::timed_out);
  CHECK(ended.error().peer == 1);
  CHECK(mentions(ended.error().what, "rank 1 has not called operation 7"));
}
