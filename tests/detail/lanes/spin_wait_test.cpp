#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/epilogue/plain_rows.hpp>
#include <ccl/epilogue/store_rows.hpp>
#include <ccl/proto/simple.hpp>

#include <chrono>
#include <thread>

#include "support/catch.hpp"
#include "support/peer_world.hpp"
#include "support/world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr Word stopped = 1;
constexpr Word wait_limit_ns = 300'000'000;

// Rank 0 never calls, and rank 1 is stopped. The data that rank 1 then has must not pass for valid
// data at rank 2, which has not been stopped. Rank 2 waits until its own deadline.
template <class Algo, class Proto>
bool passes_for_data() {
  const detail::Reduction<Sum, float> sum{Sum{}, 3};
  World world{3, 1, 8, 4096};
  std::vector<std::vector<float>> in(3, std::vector<float>(100, 1.f)), out = in;
  return world.run<AllReduce, Algo, Proto, detail::SoloLane>(sum, 1, 1, 0, [&](int r, auto& work) {
    work.input = in[r].data();
    work.output = out[r].data();
    work.layout = {r == 0 ? 0 : 100, 0, 0, true};
    if (r == 1) work.watch.stop = &stopped;
    work.watch.deadline_ns = wait_limit_ns;
  });
}

// Rank 2 never calls. Rank 0, which alone reduces a row of one tile, is stopped.
template <class Proto>
bool passes_for_a_row() {
  constexpr int length = 8;
  using Body = detail::RowBody<AllReduceRows, TwoShot, Proto, AsIs<float>, StoreRows<float>, 3, 1>;
  PeerWorld<3> world{Body::template Prims<detail::SoloLane>::row_packets(length)};
  alignas(16) float in[3][length]{}, out[3][length];
  return world.run_rows<TwoShot, Proto, detail::SoloLane, 4>(
      AsIs<float>{}, [&](int r) { return StoreRows<float>{out[r]}; }, 1,
      [&](int r, auto& work) {
        work.input = in[r];
        work.rows = r == 2 ? 0 : 1;
        work.length = length;
        if (r == 0) work.watch.stop = &stopped;
        work.watch.deadline_ns = wait_limit_ns;
      });
}
}  // namespace

TEST_CASE("what a rank that gave up has left passes for data nowhere") {
  CHECK_FALSE(passes_for_data<Ring, Simple>());
  CHECK_FALSE(passes_for_data<Ring, LL>());
  CHECK_FALSE(passes_for_data<Ring, LL128>());
  CHECK_FALSE(passes_for_data<Tree, LL>());
  CHECK_FALSE(passes_for_a_row<LL>());
  CHECK_FALSE(passes_for_a_row<LL128>());
}

TEST_CASE("a wait after a failure of its launch ends with its first poll") {
  detail::LaneFailure failure;
  detail::AbortWatch watch;
  Word stop = 0;
  watch.stop = &stop;
  watch.lane_failure = &failure;
  const auto first_poll_ends = [&] {
    detail::SpinWait<detail::HostMemory> wait{watch};
    return wait.ends(1, 0);
  };
  CHECK(!first_poll_ends());
  failure.peer = 3;
  CHECK(first_poll_ends());
  failure.peer = 0;
  stop = stopped;
  CHECK(first_poll_ends());
}

TEST_CASE("the record of a waiting CPU lane shows each poll, and stands still after the wait") {
  detail::LaneFailure failure;
  detail::WaitRecord waits;
  detail::AbortWatch watch;
  const Word stop = 0;
  watch.stop = &stop;
  watch.lane_failure = &failure;
  watch.waits = &waits;
  {
    detail::SpinWait<detail::HostMemory> wait{watch};
    for (unsigned poll = 0; poll < detail::HostMemory::check_every; ++poll) CHECK(!wait.ends(1, 5));
    CHECK((waits.peer == 2 && waits.step == 5));
    Word seen_ns = waits.seen_ns;
    for (int poll = 0; poll < 3; ++poll) {
      CHECK(!wait.ends(1, 5));
      CHECK(waits.seen_ns > seen_ns);
      seen_ns = waits.seen_ns;
    }
    CHECK((waits.peer == 2 && waits.seen_ns == seen_ns));  // the lane goes on, to a functor
  }
  CHECK(waits.peer == 0);
}

TEST_CASE("a CPU lane whose polls take long, as others have its core, still keeps its limit") {
  detail::LaneFailure failure;
  detail::AbortWatch watch;
  const Word stop = 0;
  watch.stop = &stop;
  watch.lane_failure = &failure;
  watch.deadline_ns = 50'000'000;
  const auto take_long = [](void*) {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
    return false;
  };
  detail::idle_hook = {take_long, nullptr};
  unsigned polls = 0;
  {
    detail::SpinWait<detail::HostMemory> wait{watch};
    while (!wait.ends(1, 5)) ++polls;
  }
  detail::idle_hook = {};
  CHECK(polls < 20);  // without a look at the clock after each: 2 * 256
  CHECK(failure.peer == 2);
}
