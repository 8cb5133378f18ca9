// Threads that help an engine to move steps while they wait.
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/proxy_tasks.hpp"
#include <sys/socket.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test::proxy;

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
