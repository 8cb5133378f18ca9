#include <ccl/detail/runtime/guarded.hpp>

#include <new>
#include <string>

#include "comm/state.hpp"
#include "support/loopback_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("an exception on one rank fails all of them") {
  const auto comms = make(2);
  const auto results = on_ranks(comms, [](const Communicator& comm) {
    if (comm.rank() == 0) return comm.barrier();
    return detail::guarded(comm, []() -> Result<void> { throw std::bad_alloc{}; });
  });
  REQUIRE_FALSE(results[0]);
  CHECK(results[0].error().code == Errc::aborted);
  CHECK(results[0].error().peer == 1);
  REQUIRE_FALSE(results[1]);
  CHECK(results[1].error().code == Errc::out_of_memory);
  CHECK(results[1].error().rank == 1);
}

TEST_CASE("an error that is returned concerns one rank") {
  const auto comms = make(2);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    const auto refused = detail::guarded(
        comm, []() -> Result<void> { return fail(Errc::invalid_argument, "a bad root"); });
    if (refused || refused.error().code != Errc::invalid_argument) {
      return fail(Errc::internal, "another error");
    }
    return comm.barrier();
  });
}

TEST_CASE("ranks receive the failure of a thread without memory") {
  const auto comms = make(2);
  const auto results = on_ranks(comms, [](const Communicator& comm) {
    if (comm.rank() == 0) return comm.barrier();
    return detail::guarded(comm, [&]() -> Result<void> {
      Error error;
      error.code = Errc::out_of_memory;
      detail::Access::state(comm)->status.set(error);
      return comm.status();
    });
  });
  REQUIRE_FALSE(results[0]);
  CHECK(results[0].error().code == Errc::aborted);
  REQUIRE_FALSE(results[1]);
  CHECK(results[1].error().code == Errc::out_of_memory);
}
