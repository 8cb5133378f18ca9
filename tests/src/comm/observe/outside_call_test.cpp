#include "comm/observe/outside_call.hpp"

#include <ccl/comm/communicator.hpp>

#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "support/gpu_ranks.hpp"
#include "support/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

Operation sum(Index count) {
  Operation op;
  std::string_view{"all_reduce/NCCL/NCCL"}.copy(op.what, sizeof op.what - 1);
  op.count = count;
  return op;
}
/// State of the latest operation of a rank's records.
std::string latest(detail::CommState& state) {
  const auto all = state.observers.status().operations;
  return all.empty() ? "none" : std::string{name(all.back().state)};
}

}  // namespace

TEST_CASE("a call that no composition runs has its place in a CPU rank's records") {
  const auto said = run(
      2, [](int) {},
      [](const Communicator& comm) -> Answer {
        detail::CommState& state = *detail::Access::state(comm);
        auto& counters = state.observers.counters();
        const int sums = detail::CallCounters::operation_of("all_reduce");
        const auto before = counters.calls(sums);
        std::string text;
        {
          const detail::OutsideCall good{state, sum(100), 8};
          text += latest(state);
          good.ended({});
          text += " " + latest(state);
        }
        const detail::OutsideCall bad{state, sum(100), 8};
        bad.ended(fail(Errc::internal, "the test"));
        const auto& cell = counters.cell(sums, detail::CallCounters::class_of(800));
        return text + " " + latest(state) + " " + std::to_string(counters.calls(sums) - before) +
               " of " + std::to_string(cell.bytes) + " bytes, failed " +
               std::to_string(cell.failed) + ", ended " + std::to_string(cell.ended);
      });
  for (const std::string& one : said) {
    CHECK(one == "running done failed 2 of 1600 bytes, failed 1, ended 1");
  }
}

TEST_CASE("a barrier that fails is a call that has failed") {
  const int barriers = detail::CallCounters::operation_of("barrier");
  const auto id = create_unique_id();
  REQUIRE(id);
  std::atomic<const detail::CallCounters*> counters{nullptr};
  std::thread other{[&] {
    const auto comm = Communicator::create(*id, 1, 2);
    if (!comm) return;
    while (counters == nullptr || counters.load()->calls(barriers) == 0) std::this_thread::yield();
    comm->abort("the test");
  }};
  const auto comm = Communicator::create(*id, 0, 2);
  if (comm) {
    counters = &detail::Access::state(*comm)->observers.counters();
    CHECK_FALSE(comm->barrier());
  }
  other.join();
  REQUIRE(comm);
  const auto& cell = counters.load()->cell(barriers, 0);
  CHECK(cell.calls == 1);
  CHECK(cell.failed == 1);
  CHECK(cell.ended == 0);
}

TEST_CASE("on a GPU a call that is queued runs until a later one waits, unless it has failed") {
  (void)gpus(2);
  const auto comms = create({0, 1});
  REQUIRE((comms[0] && comms[1]));
  detail::CommState& state = *detail::Access::state(*comms[0]);
  const detail::OutsideCall one{state, sum(1), 4};
  one.ended({});
  CHECK(latest(state) == "launched");
  const detail::OutsideCall other{state, sum(1), 4};
  other.ended(fail(Errc::cuda, "the test"));
  CHECK(latest(state) == "failed");
}

TEST_CASE("a rank alone keeps no records, and one whose communicator has failed lists no call") {
  auto alone = Communicator::create_all(1);
  REQUIRE(alone);
  const detail::OutsideCall one{*detail::Access::state(alone->front()), sum(1), 4};
  one.ended({});
  (void)gpus(2);
  const auto comms = create({0, 1});
  REQUIRE((comms[0] && comms[1]));
  comms[0]->abort();
  const detail::OutsideCall late{*detail::Access::state(*comms[0]), sum(1), 4};
  late.ended({});
  CHECK(latest(*detail::Access::state(*comms[0])) == "none");
}
