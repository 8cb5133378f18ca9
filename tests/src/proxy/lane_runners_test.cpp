#include "proxy/lane_runners.hpp"

#include <ccl/detail/exec/host_executor.hpp>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/thread.hpp"
#include "support/catch.hpp"

using namespace ccl;
using detail::this_thread_facts;

namespace {

template <class Body>
bool run(detail::LaneRunners& runners, Body body) {
  return runners.run([](void* of) { (*static_cast<Body*>(of))(); }, &body);
}

}  // namespace

TEST_CASE("a launch runs on a thread that can be left behind, and launches share threads") {
  detail::LaneRunners runners;
  const auto program = std::this_thread::get_id();
  std::thread::id first, second;
  REQUIRE(run(runners, [&] {
    first = std::this_thread::get_id();
    CHECK(this_thread_facts.can_be_left);
  }));
  REQUIRE(run(runners, [&] { second = std::this_thread::get_id(); }));
  CHECK(first == second);
  CHECK(first != program);
  CHECK_FALSE(this_thread_facts.can_be_left);
}

TEST_CASE("launches at the same time have threads of their own, also from each other") {
  detail::LaneRunners runners;
  std::atomic<int> inside{0};
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&] {
      REQUIRE(run(runners, [&] {
        ++inside;
        while (inside < 4) std::this_thread::yield();
      }));
    });
  }
  for (auto& thread : threads) thread.join();
  REQUIRE(run(runners, [&] { REQUIRE(run(runners, [&] { ++inside; })); }));
  CHECK(inside == 5);
}

TEST_CASE("an exception of a launch reaches its caller, and the thread runs others") {
  detail::LaneRunners runners;
  CHECK_THROWS_AS(run(runners, [] { throw std::runtime_error{"lanes"}; }), std::runtime_error);
  bool ran = false;
  CHECK(run(runners, [&] { ran = true; }));
  CHECK(ran);
}

TEST_CASE("a launch ends when all lanes have but those that are left behind") {
  struct State {
    std::atomic<int> ended{0};
    std::atomic<bool> stuck{false}, released{false}, beyond{false};
    std::atomic<detail::LaneScope*> scope{nullptr};
  };
  // Also for threads of lanes that live on.
  auto& state = *new State;
  for (const int stuck_lane : {0, 1}) {
    state.ended = 0;
    state.stuck = state.released = state.beyond = false;
    detail::LaneRunners runners;
    std::thread leaver{[&] {
      while (!state.stuck) std::this_thread::yield();
      state.scope.load()->leave_one();
    }};
    REQUIRE(run(runners, [&state, stuck_lane] {
      detail::HostExecutor::run<detail::SoloLane>(
          3, [&state, stuck_lane](detail::SoloLane, int channel) {
            if (channel == stuck_lane) {
              state.scope = this_thread_facts.lanes;
              state.stuck = true;
              state.released.wait(false);
              detail::park_thread();
            }
            // The others end later.
            while (!state.stuck) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds{100});
            ++state.ended;
          });
      state.beyond = true;
    }));
    CHECK(state.ended == 2);
    CHECK_FALSE(state.beyond);
    leaver.join();
    state.released = true;
    state.released.notify_all();
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    CHECK_FALSE(state.beyond);
    CHECK(run(runners, [&] { state.ended = 7; }));
    CHECK(state.ended == 7);
  }
}
