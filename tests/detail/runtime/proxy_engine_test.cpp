#include <ccl/detail/runtime/proxy_engine.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <new>
#include <vector>

#include "support/catch.hpp"
#include "support/counted_allocations.hpp"
#include "support/proxy_tasks.hpp"
#include <sys/socket.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test::proxy;

namespace {

double process_cpu_s() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return double(used.tv_sec) + double(used.tv_nsec) * 1e-9;
}

}  // namespace

TEST_CASE("the engine's thread moves what is posted once it is called") {
  detail::ProxyEngine engine;
  auto task = std::make_shared<Mover>();
  REQUIRE(engine.add(task).has_value());
  for (Word n = 1; n <= 200; ++n) {
    task->posted = n;
    engine.wake();
    if (n % 50 == 0) REQUIRE(wait_until([&] { return task->done == n; }));
  }
  CHECK(wait_until([&] { return engine.counters().steps == 200; }));
  CHECK(engine.counters().bytes == 1600);
  CHECK(engine.counters().tasks == 1);
}

TEST_CASE("a socket wakes the engine") {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  {
    detail::ProxyEngine engine;
    auto task = std::make_shared<Mover>(fds[0]);
    REQUIRE(engine.add(task).has_value());
    for (Word n = 1; n <= 50; ++n) {
      REQUIRE(::send(fds[1], "x", 1, 0) == 1);
      REQUIRE(wait_until([&] { return task->done == n; }));
    }
  }
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST_CASE("room for tasks grows with their number, and not by each of them") {
  constexpr int count = 1000;
  detail::ProxyEngine engine;
  REQUIRE(engine.add(std::make_shared<Mover>()).has_value());  // starts the thread
  std::vector<std::shared_ptr<Mover>> tasks;
  for (int n = 1; n < count; ++n) tasks.push_back(std::make_shared<Mover>());
  const bool added = ccl::test::count_allocations([&] {
    return std::ranges::all_of(tasks, [&](auto& task) { return engine.add(task).has_value(); });
  });
  CHECK(added);
  CHECK(ccl::test::allocations < 30);
  CHECK(engine.counters().tasks == count);
}

TEST_CASE("an idle engine burns no processor time") {
  detail::ProxyEngine engine;
  REQUIRE(engine.add(std::make_shared<Mover>()).has_value());
  REQUIRE(wait_until([&] { return engine.counters().sleeps > 0; }));
  // Again where the engine's thread had no core to go to sleep on.
  CHECK(wait_until([&] {
    const Word rounds = engine.counters().rounds;
    const double before = process_cpu_s();
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
    return process_cpu_s() - before < 0.02 && engine.counters().rounds == rounds;
  }));
}

TEST_CASE("what is posted to a polled task without a call is moved within a moment") {
  detail::ProxyEngine engine;
  auto task = std::make_shared<Mover>();
  task->polled = true;
  REQUIRE(engine.add(task).has_value());
  for (Word n = 1; n <= 40; ++n) {
    // At once, and when the engine has become slow to look.
    if (n % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds{20});
    task->posted = n;
    REQUIRE(wait_until([&] { return task->done == n; }));
  }
}

TEST_CASE("an engine looks at idle polled tasks once in a millisecond") {
  detail::ProxyEngine engine;
  auto task = std::make_shared<Mover>();
  task->polled = true;
  REQUIRE(engine.add(task).has_value());
  // Waits until polling is slow: each pause is an eighth of the time before it.
  REQUIRE(wait_until([&] { return engine.counters().sleeps > 60; }));
  // On a busy machine the sleep can take longer, and the clock is read last.
  const auto begin = std::chrono::steady_clock::now();
  const double before = process_cpu_s();
  const Word rounds = engine.counters().rounds;
  std::this_thread::sleep_for(std::chrono::milliseconds{300});
  CHECK(wait_until([&] { return engine.counters().rounds > rounds; }));
  const Word looks = engine.counters().rounds - rounds;
  const double used_s = process_cpu_s() - before;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK(double(looks) <= took.count() * 1000 + 1);
  CHECK(used_s < took.count() / 10);
  // Tasks that end by themselves delay no other task.
  task->end = true;
  CHECK(wait_until([&] { return engine.counters().tasks == 0; }));
}

TEST_CASE("calls that follow each other do not wake the thread for what is polled for helpers") {
  using Clock = std::chrono::steady_clock;
  detail::ProxyEngine engine;
  auto task = std::make_shared<Mover>();
  task->polled = task->for_helpers = true;
  REQUIRE(engine.add(task).has_value());
  REQUIRE(wait_until([&] { return engine.counters().sleeps > 60; }));  // polling is slow
  const Word before = engine.counters().sleeps;
  const auto begin = Clock::now();
  // Each sleep takes at most 4 ms, and a loaded machine runs the thread more rarely.
  const auto sleeps_on = [&] { return engine.counters().sleeps > before + 10; };
  while (!sleeps_on() && Clock::now() - begin < std::chrono::seconds{3}) {
    const detail::ProxyEngine::Helper helps{engine};
    const Word step = ++task->posted;
    while (task->done < step) detail::HostMemory::pause();
  }
  CHECK(sleeps_on());
  task->end = true;
}

TEST_CASE("what is polled for helpers is moved within a moment, however the thread sleeps") {
  detail::ProxyEngine engine;
  auto task = std::make_shared<Mover>();
  REQUIRE(engine.add(task).has_value());
  for (Word n = 1; n <= 20; ++n) {
    // Without a polled task it sleeps without an end.
    const Word sleeps = engine.counters().sleeps;
    engine.wake();
    REQUIRE(wait_until([&] { return engine.counters().sleeps > sleeps; }));
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
    {
      const detail::ProxyEngine::Helper helps{engine};
      detail::HostMemory::pause();
      task->polled = task->for_helpers = true;
    }
    task->posted = n;
    REQUIRE(wait_until([&] { return task->done == n; }));
    task->polled = task->for_helpers = false;
  }
  task->end = true;
}

TEST_CASE("an idle task gets a turn at its deadline, and the engine sleeps until then") {
  using Clock = std::chrono::steady_clock;
  struct Late : ProxyTask {
    Progress progress(ProxyCounters&) override {
      if (deadline != Clock::time_point{} && Clock::now() >= deadline) turned = true;
      return Progress::none;
    }
    ProxyInterest interest() const override {
      // From the first time on that the engine asks: on a loaded machine it begins late.
      if (deadline == Clock::time_point{}) deadline = Clock::now() + std::chrono::milliseconds{300};
      ProxyInterest interest;
      if (!turned) interest.deadline = deadline;
      return interest;
    }
    bool ending() const override { return false; }
    mutable Clock::time_point deadline{};  // of the engine's thread
    std::atomic<bool> turned{false};
  };
  detail::ProxyEngine engine;
  auto task = std::make_shared<Late>();
  REQUIRE(engine.add(task).has_value());
  REQUIRE(wait_until([&] { return task->turned.load(); }));
  const Word sleeps = engine.counters().sleeps;
  CHECK(sleeps >= 1);
  CHECK(sleeps <= 5);  // a poll once in a millisecond has some 300
  // Without a deadline it sleeps, and may do so before this thread looks.
  CHECK(wait_until([&] {
    const Word rounds = engine.counters().rounds;
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    return engine.counters().rounds == rounds;
  }));
}

TEST_CASE("a launch wakes the further engines whose tasks are polled") {
  detail::ProxyEngine engine;
  auto polled = std::make_shared<Mover>(), other = std::make_shared<Mover>();
  polled->polled = true;
  REQUIRE(engine.further(0).add(polled).has_value());
  REQUIRE(engine.further(1).add(other).has_value());
  REQUIRE(wait_until([&] { return engine.further(1).counters().sleeps > 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  const Word rounds = engine.further(1).counters().rounds;
  for (Word n = 1; n <= 20; ++n) {
    polled->posted = n;
    engine.wake_polled();
    REQUIRE(wait_until([&] { return polled->done == n; }));
  }
  CHECK(engine.further(1).counters().rounds == rounds);
}

TEST_CASE("tasks that are ending may finish when the engine goes, the others are dropped") {
  auto ending = std::make_shared<Mover>(), endless = std::make_shared<Mover>();
  {
    detail::ProxyEngine engine;
    REQUIRE(engine.add(ending).has_value());
    REQUIRE(engine.add(endless).has_value());
    REQUIRE(wait_until([&] { return engine.counters().sleeps > 0; }));
    ending->posted = 500;
    ending->end = true;
  }
  CHECK(ending->done == 500);
  CHECK(ending.use_count() == 1);
  CHECK(endless.use_count() == 1);
}

TEST_CASE("an engine without tasks has no thread and helps nobody") {
  detail::ProxyEngine engine;
  CHECK(!engine.help());
  CHECK(engine.counters().rounds == 0);
}

TEST_CASE("a task that throws is dropped and fails the communicator") {
  struct Thrower final : ProxyTask {
    Progress progress(ProxyCounters&) override { throw std::bad_alloc{}; }
    ProxyInterest interest() const override { return {-1, 0, true}; }
    bool ending() const override { return false; }
  };
  detail::Status status;
  detail::ProxyEngine engine{&status};
  const auto other = std::make_shared<Mover>();
  REQUIRE(engine.add(other));
  REQUIRE(engine.add(std::make_shared<Thrower>()));
  REQUIRE(wait_until([&] { return !status.ok(); }));
  CHECK(status.result().error().code == Errc::out_of_memory);
  CHECK(wait_until([&] { return engine.counters().tasks == 1; }));
  other->posted = 1;
  engine.wake();
  CHECK(wait_until([&] { return other->done.load() == 1; }));
}

TEST_CASE("an engine whose task does not return is wanted and makes no turn") {
  struct Holds final : ProxyTask {
    Progress progress(ProxyCounters&) override {
      inside = true;
      while (holds) std::this_thread::yield();
      return Progress::none;
    }
    ProxyInterest interest() const override { return {}; }
    bool ending() const override { return false; }
    std::atomic<bool> inside{false}, holds{true};
  };
  detail::ProxyEngine engine;
  CHECK_FALSE(engine.activity().wanted);
  CHECK_FALSE(engine.further_activity(0));
  const auto task = std::make_shared<Holds>();
  REQUIRE(engine.add(task).has_value());
  REQUIRE(wait_until([&] { return task->inside.load(); }));
  const auto first = engine.activity();
  CHECK(first.wanted);
  CHECK_FALSE(engine.help());  // another thread has the round
  CHECK(engine.activity().turns == first.turns);
  task->holds = false;
  CHECK(wait_until([&] { return !engine.activity().wanted; }));  // it sleeps
  CHECK(engine.activity().turns > first.turns);
  (void)engine.further(0);
  REQUIRE(engine.further_activity(0));
  CHECK_FALSE(engine.further_activity(0)->wanted);
  CHECK(engine.bytes_moved() == 0);
}

TEST_CASE("further engines live until the last task of the engine has ended") {
  struct Flagged final : ProxyTask {
    explicit Flagged(std::atomic<bool>& flag) : gone{flag} {}
    ~Flagged() override { gone = true; }
    Progress progress(ProxyCounters&) override { return Progress::none; }
    ProxyInterest interest() const override { return {}; }
    bool ending() const override { return false; }
    std::atomic<bool>& gone;
  };
  // As a stream of a connection that wakes the others' engines while it sends its last steps.
  struct Waker final : ProxyTask {
    Progress progress(ProxyCounters&) override {
      late = late || gone;
      if (!late) other->wake();
      const auto now = std::chrono::steady_clock::now();
      if (!dropped || end == decltype(end){}) end = now + std::chrono::milliseconds{50};
      ended = now >= end;
      return ended ? Progress::ended : Progress::some;
    }
    ProxyInterest interest() const override { return {-1, 0, true}; }
    bool ending() const override { return dropped; }
    detail::ProxyEngine* other = nullptr;
    std::chrono::steady_clock::time_point end{};
    std::atomic<bool> gone{false}, late{false}, dropped{false}, ended{false};
  };
  const auto waker = std::make_shared<Waker>();
  {
    detail::ProxyEngine engine;
    waker->other = &engine.further(0);
    REQUIRE(waker->other->add(std::make_shared<Flagged>(waker->gone)));
    REQUIRE(engine.add(waker));
    waker->dropped = true;
  }
  CHECK(waker->ended);
  CHECK_FALSE(waker->late);
}
