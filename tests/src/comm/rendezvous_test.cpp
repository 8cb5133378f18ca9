// Errors that ranks of a communicator send each other.
#include "comm/rendezvous.hpp"

#include <ccl/comm/communicator.hpp>

#include "comm/state.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("a rank that a transport has failed tells the others why before it leaves") {
  auto comms = Communicator::create_all(3);
  REQUIRE(comms);
  {
    const Communicator first = std::move((*comms)[0]);
    detail::CommState& state = *detail::Access::state(first);
    Error error{Errc::timed_out, "rank 2 did not answer"};
    error.peer = 2;
    error.transport = "ib";
    state.status.set(error);  // as a task of a proxy does
    CHECK(state.rendezvous.without_answer(error).peer == 2);
  }
  comms->erase(comms->begin());
  for (const Communicator& comm : *comms) {
    CHECK(wait_until([&] { return !comm.status(); }, 20));
    const auto status = comm.status();
    REQUIRE_FALSE(status);
    INFO(status.error().message());
    CHECK(status.error().code == Errc::timed_out);
    CHECK(status.error().peer == 2);
    CHECK(mentions(status.error().what, "did not answer"));
  }
}
