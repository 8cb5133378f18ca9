// Failures that no call of ccl has sent reach the other ranks.
#include <ccl/ccl.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "support/fake_gpus.hpp"
#include "support/gpu_ranks.hpp"
#include "support/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
/// Waits for the failure of `comm` without a call that looks for one.
bool fails_unasked(const Communicator& comm) {
  return wait_until([&] { return !detail::Access::state(comm)->status.ok(); }, 10);
}
}  // namespace

TEST_CASE("the failure of a transport ends ranks that wait, while its own rank is in no call") {
  const auto ring = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto sum, (Collective<AllReduce, Ring, Simple>::create(comm)));
    CCL_CHECK(comm.barrier());
    if (comm.rank() == 1) {
      detail::Access::state(comm)->status.set({Errc::network, "the queue pair is broken"});
      sleep_s(4);  // in the program, say
      return std::string{"back"};
    }
    int x = 1;
    const auto done = sum(&x, &x, 1);
    return done ? "went on" : done.error().what;
  };
  const auto said = run(
      3, [](int) {}, ring, false);
  for (const int r : {0, 2}) {
    INFO(said[std::size_t(r)]);
    CHECK(said[std::size_t(r)].find("the queue pair is broken") != std::string::npos);
  }
}

TEST_CASE("the failure of a kernel is found and sent while no rank is in a call") {
  (void)gpus(2);
  const auto comms = create({0, 1});
  for (const auto& comm : comms) REQUIRE(comm);
  detail::Access::state(*comms[0])->device.gpu->watched().lane_failure = {.peer = 2, .step = 5};
  for (const auto& comm : comms) CHECK(fails_unasked(*comm));
  CHECK(comms[0]->status().error().code == Errc::timed_out);
  CHECK(comms[1]->status().error().code == Errc::timed_out);
}
