#include <ccl/detail/runtime/proxy_engine.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <new>

#include "support/catch.hpp"
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace ccl;

namespace {

/// Moves steps from `posted` to `done`; optionally only when its descriptor is readable.
class Mover : public ProxyTask {
 public:
  explicit Mover(int fd = -1) : fd_{fd} {}
  Progress progress(ProxyCounters& counters) override {
    ++sequencer;
    if (inside_.exchange(true)) overlapped = true;
    Progress progress = Progress::none;
    if (fd_ >= 0) {
      char byte = 0;
      if (::recv(fd_, &byte, 1, MSG_DONTWAIT) == 1) progress = count(counters);
    } else if (done.load() < posted.load()) {
      progress = count(counters);
    }
    if (end.load() && done.load() == posted.load()) progress = Progress::ended;
    inside_ = false;
    return progress;
  }
  ProxyInterest interest() const override {
    return {fd_, short(fd_ >= 0 ? POLLIN : 0), fd_ < 0 && done.load() < posted.load(), polled};
  }
  bool ending() const override { return end.load(); }

  std::atomic<Word> posted{0}, done{0}, sequencer{0};
  std::atomic<bool> end{false}, overlapped{false};
  bool polled = false;  // set before the task is added

 private:
  Progress count(ProxyCounters& counters) {
    done.fetch_add(1);
    ++counters.steps;
    counters.bytes += 8;
    return Progress::some;
  }
  int fd_;
  std::atomic<bool> inside_{false};
};

template <class Done>
bool wait_until(Done done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

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

TEST_CASE("helpers from many threads take turns, and every task has its own") {
  detail::ProxyEngine engine;
  std::vector<std::shared_ptr<Mover>> tasks;
  for (int n = 0; n < 3; ++n) {
    tasks.push_back(std::make_shared<Mover>());
    REQUIRE(engine.add(tasks.back()).has_value());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const detail::ProxyEngine::Helper helper{engine};
      for (int n = 0; n < 300; ++n) {
        const Word mine = tasks[std::size_t(t)]->posted.fetch_add(1) + 1;
        while (tasks[std::size_t(t)]->done < mine) detail::HostMemory::pause();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& task : tasks) {
    CHECK(task->done == 300);
    CHECK(!task->overlapped);
    CHECK(task->sequencer >= 300);
  }
  CHECK(engine.counters().helped > 0);
  CHECK(engine.counters().steps == 900);
}

TEST_CASE("the engine finishes what a helper leaves") {
  detail::ProxyEngine engine;
  auto task = std::make_shared<Mover>();
  REQUIRE(engine.add(task).has_value());
  for (Word n = 1; n <= 20; ++n) {
    {
      const detail::ProxyEngine::Helper helper{engine};
      task->posted = 100 * n;  // a round moves one
    }
    REQUIRE(wait_until([&] { return task->done == 100 * n; }));
  }
}

namespace {
/// Its posted steps wait for a gate without notification: a slot that a peer writes.
class Gated : public ProxyTask {
 public:
  Progress progress(ProxyCounters&) override {
    if (!waits() || !open.load()) return Progress::none;
    done.fetch_add(1);
    return Progress::some;
  }
  ProxyInterest interest() const override { return {-1, 0, waits() && open.load(), waits()}; }
  bool ending() const override { return false; }

  std::atomic<Word> posted{0}, done{0};
  std::atomic<bool> open{false};

 private:
  bool waits() const { return done.load() < posted.load(); }
};
}  // namespace

TEST_CASE("the engine looks for what a helper's call has left waiting, however soundly it slept") {
  detail::ProxyEngine engine;
  auto task = std::make_shared<Gated>();
  REQUIRE(engine.add(task).has_value());
  for (Word n = 1; n <= 20; ++n) {
    task->open = false;
    std::this_thread::sleep_for(std::chrono::milliseconds{5});  // nothing to do: it sleeps for good
    {
      const detail::ProxyEngine::Helper helper{engine};
      task->posted = n;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    task->open = true;
    REQUIRE(wait_until([&] { return task->done == n; }));
  }
}

namespace {
/// Moves all that is posted in one turn; what is posted may wait for more.
class Gatherer : public ProxyTask {
 public:
  Progress progress(ProxyCounters&) override {
    const Word all = posted.load();
    if (done.load() == all) return Progress::none;
    done = all;
    moves.fetch_add(1);
    return Progress::some;
  }
  ProxyInterest interest() const override {
    const bool pending = done.load() < posted.load();
    return {-1, 0, pending, false, false, pending};
  }
  bool ending() const override { return false; }

  std::atomic<Word> posted{0}, done{0}, moves{0};
};
}  // namespace

TEST_CASE("what calls in quick succession leave is moved together, and the last without a call") {
  detail::ProxyEngine engine;
  auto task = std::make_shared<Gatherer>();
  REQUIRE(engine.add(task).has_value());
  // Again where another program had this thread's core meanwhile.
  CHECK(wait_until([&] {
    const Word moves = task->moves;
    for (int n = 0; n < 1000; ++n) {
      const detail::ProxyEngine::Helper helper{engine};
      task->posted.fetch_add(1);
    }
    REQUIRE(wait_until([&] { return task->done == task->posted; }));
    return task->moves - moves < 500;
  }));
  // No more calls: the thread must go to sleep.
  CHECK(wait_until([&] {
    const Word sleeps = engine.counters().sleeps;
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    return engine.counters().sleeps == sleeps;
  }));
  // Later calls wake it.
  for (Word burst = 1; burst <= 20; ++burst) {
    for (Word n = 0; n < 10 * burst; ++n) {
      const detail::ProxyEngine::Helper helper{engine};
      task->posted.fetch_add(1);
    }
    if (burst % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds{burst});
    REQUIRE(wait_until([&] { return task->done == task->posted; }));
  }
}

TEST_CASE("what a call leaves after a pause is moved before it ends") {
  detail::ProxyEngine engine;
  auto task = std::make_shared<Gatherer>();
  REQUIRE(engine.add(task).has_value());
  for (Word n = 1; n <= 20; ++n) {
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
    {
      const detail::ProxyEngine::Helper helper{engine};
      task->posted = n;
    }
    // Either this thread or the engine's thread, which is in a round, moves the step.
    REQUIRE(wait_until([&] { return task->done == n; }));
  }
}

TEST_CASE("the engine stays out of the way while a helper is at it") {
  detail::ProxyEngine engine;
  auto task = std::make_shared<Mover>();
  REQUIRE(engine.add(task).has_value());
  const detail::ProxyEngine::Helper helper{engine};
  // Again where another program had this thread's core meanwhile.
  CHECK(wait_until([&] {
    const auto before = engine.counters();
    for (const Word last = task->posted + 20'000; task->posted < last;) {
      const Word n = task->posted + 1;
      task->posted = n;
      while (task->done < n) detail::HostMemory::pause();
    }
    const auto after = engine.counters();
    return after.helped - before.helped >= 19'000 && after.rounds - before.rounds < 1'000;
  }));
}

TEST_CASE("a helper blocks between looks, unless it looks elsewhere, too") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  detail::ProxyEngine engine;
  REQUIRE(engine.add(std::make_shared<Mover>(ends[0])).has_value());
  const auto looks = [&](bool looks_elsewhere) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});  // a wait of its own
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds{30};
    int count = 0;
    for (; std::chrono::steady_clock::now() < end; ++count) engine.help(looks_elsewhere);
    return count;
  };
  // Again where another program had this thread's core meanwhile.
  CHECK(wait_until([&] { return looks(true) > 4 * looks(false); }));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("in a helper's round those that send go first") {
  detail::ProxyEngine engine;
  std::vector<int> order;  // only this thread helps
  struct EntryId : ProxyTask {
    EntryId(std::vector<int>& order, int n, bool first) : order_{order}, n_{n} {
      goes_first = first;
    }
    Progress progress(ProxyCounters&) override {
      if (helper == std::this_thread::get_id()) order_.push_back(n_);
      return Progress::none;
    }
    ProxyInterest interest() const override { return {}; }
    bool ending() const override { return false; }
    std::vector<int>& order_;
    const int n_;
    const std::thread::id helper = std::this_thread::get_id();
  };
  for (int n = 0; n < 4; ++n) {
    REQUIRE(engine.add(std::make_shared<EntryId>(order, n, n % 2 == 1)).has_value());
  }
  while (order.size() < 40) (void)engine.help(true);
  for (std::size_t n = 0; n < order.size(); ++n) CHECK(order[n] % 2 == (n % 4 < 2 ? 1 : 0));
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
