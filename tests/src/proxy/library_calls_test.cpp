// Calls of tasks to another library that do not return: which thread is left behind, and what goes
// on without it.
#include "proxy/library_calls.hpp"

#include <ccl/detail/runtime/proxy_engine.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/catch.hpp"
#include "support/elapsed.hpp"
#include "support/proxy_tasks.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::proxy;

namespace {

using Clock = std::chrono::steady_clock;

/// State of the library that a task calls. Outlives the task.
struct Library {
  std::atomic<int> calls{0}, returns{0};
  std::atomic<bool> holds{false};  // a call does not return before it is false
  std::atomic<bool> left{false};
  std::string function;
  double seconds = 0;
};

/// Calls the library in each turn, with `limit_s`.
struct CallingTask final : ProxyTask {
  CallingTask(std::shared_ptr<detail::LibraryCalls> by, std::shared_ptr<Library> of, double limit)
      : calls{std::move(by)}, library{std::move(of)}, limit_s{limit} {
    calls_library = true;
  }
  Progress progress(ProxyCounters&) override {
    calls->run("frob", limit_s, [&] {
      ++library->calls;
      if (!holds_lanes || detail::this_thread_facts.lanes != nullptr) library->holds.wait(true);
      return 0;
    });
    ++library->returns;  // of a call whose thread was not left behind
    return end.load() ? Progress::ended : Progress::none;
  }
  ProxyInterest interest() const override { return {-1, 0, false, true}; }
  bool ending() const override { return end.load(); }
  Error left_in_call(const char* function, double seconds, bool lanes) override {
    library->function = function;
    library->seconds = seconds;
    library->left = true;
    Error error{Errc::timed_out, lanes ? "lanes are left" : "no lanes"};
    error.rank = 4, error.peer = 7;
    return error;
  }
  const std::shared_ptr<detail::LibraryCalls> calls;
  const std::shared_ptr<Library> library;
  const double limit_s;
  bool holds_lanes = false;  // and no other threads
  std::atomic<bool> end{false};
};

struct Called {
  detail::Status status;
  std::optional<detail::ProxyEngine> engine{std::in_place, &status};
  std::shared_ptr<detail::LibraryCalls> calls = engine->library_calls().value();
  std::shared_ptr<Library> library = std::make_shared<Library>();
  std::shared_ptr<CallingTask> add(double limit_s = 0) {
    const auto task = std::make_shared<CallingTask>(calls, library, limit_s);
    REQUIRE(engine->add(task));
    REQUIRE(wait_until([&] { return library->calls > 0; }));
    return task;
  }
  void let_go() {
    library->holds = false;
    library->holds.notify_all();
  }
};

}  // namespace

TEST_CASE("a call that is overdue loses its thread, and the engine's other tasks go on") {
  Called of;
  const auto other = std::make_shared<Mover>();
  other->polled = true;
  REQUIRE(of.engine->add(other));
  of.library->holds = true;
  const auto task = of.add(0.3);
  CHECK(wait_until([&] { return of.library->left.load(); }));
  CHECK(of.library->function == "frob");
  CHECK(of.library->seconds >= 0.3);
  CHECK(of.library->calls == 1);
  CHECK(of.engine->counters().tasks == 1);
  const Word turns = other->sequencer;
  CHECK(wait_until([&] { return other->sequencer > turns + 10; }));
  CHECK_FALSE(other->overlapped);
  CHECK(of.status.ok());  // the task says whether that is a failure
  // A task may be added, and a call may return late: nothing comes of it.
  REQUIRE(of.engine->add(std::make_shared<Mover>()));
  of.let_go();
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  CHECK(of.library->returns == 0);
  other->end = true;
}

TEST_CASE("a call within its limit keeps its thread, however many there are") {
  Called of;
  const auto task = of.add(0.5);
  const auto begin = Clock::now();
  CHECK(wait_until([&] { return seconds_since(begin) > 1.5 && of.library->returns > 100; }));
  CHECK_FALSE(of.library->left);
  task->end = true;
}

TEST_CASE("without a limit, a call is left once its engine has failed or ends") {
  for (const bool fails : {false, true}) {
    INFO(fails);
    Called of;
    of.library->holds = true;
    (void)of.add();
    std::this_thread::sleep_for(std::chrono::milliseconds{1500});
    CHECK_FALSE(of.library->left);
    const auto begin = Clock::now();
    if (fails) {
      of.status.set({Errc::aborted, "abort"});
      CHECK(wait_until([&] { return of.library->left.load(); }));
    }
    of.engine.reset();
    CHECK(of.library->left);
    CHECK(seconds_since(begin) < 8);
    of.let_go();
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    CHECK(of.library->returns == 0);
  }
}

TEST_CASE("a task that ends gets its last turns, in which it may call") {
  Called of;
  const auto task = of.add();
  task->end = true;
  const auto begin = Clock::now();
  of.engine.reset();
  CHECK_FALSE(of.library->left);
  CHECK(of.library->returns > 0);
  CHECK(seconds_since(begin) < 5);
}

namespace {
/// The process exits, as the calls see it, for as long as this lives.
struct Exiting {
  Exiting() { detail::LibraryCalls::set_ended(true); }
  ~Exiting() { detail::LibraryCalls::set_ended(false); }
  Exiting(const Exiting&) = delete;
  Exiting& operator=(const Exiting&) = delete;
};
}  // namespace

TEST_CASE("no task calls another library once the process exits, and its end waits for none") {
  Called of;
  const auto task = of.add();
  const Exiting exits;
  CHECK(of.engine->await_library_calls(10));
  const int before = of.library->calls;
  of.engine->wake();
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  CHECK(of.library->calls == before);
  task->end = true;
  const auto begin = Clock::now();
  of.engine.reset();
  CHECK(of.library->calls == before);
  CHECK(seconds_since(begin) < 5);
}

TEST_CASE("tasks call on if their rank leaves in order and the process does not exit") {
  Called of;
  (void)of.add();
  of.status.set_leaving();
  const int before = of.library->calls;
  CHECK(wait_until([&] {
    of.engine->wake();
    return of.library->calls > before + 3;
  }));
}

TEST_CASE("the wait for calls of a process that exits has a limit") {
  Called of;
  of.library->holds = true;
  (void)of.add();
  const Exiting exits;
  CHECK_FALSE(of.engine->await_library_calls(0.1));
  of.let_go();
  CHECK(of.engine->await_library_calls(10));
}

TEST_CASE("a launch whose lanes fail ends when no library accesses registered buffers any more") {
  Called of;
  struct Accessing final : ProxyTask {
    explicit Accessing(const detail::Status& of) : status{of} { calls_library = true; }
    Progress progress(ProxyCounters&) override {
      if (!status.ok() && ++turns == 20) access = false;
      return Progress::none;
    }
    ProxyInterest interest() const override { return {-1, 0, false, true}; }
    bool ending() const override { return false; }
    bool has_access() const override { return access; }
    const detail::Status& status;
    int turns = 0;
    std::atomic<bool> access{true};
  };
  const auto task = std::make_shared<Accessing>(of.status);
  REQUIRE(of.engine->add(task));
  auto lanes = [&] { CHECK(task->access); };
  const auto run = [&] {
    of.engine->run_lanes([](void* given) { (*static_cast<decltype(lanes)*>(given))(); }, &lanes,
                         false);
  };
  run();
  CHECK(task->access);
  auto failing = [&] { of.status.set({Errc::timed_out, "a lane"}); };
  of.engine->run_lanes([](void* given) { (*static_cast<decltype(failing)*>(given))(); }, &failing,
                       false);
  CHECK_FALSE(task->access);
}

TEST_CASE("a thread of the program makes no call for the engine, and wakes who makes it") {
  Called of;
  struct Threads final : ProxyTask {
    Threads() { calls_library = true; }
    Progress progress(ProxyCounters&) override {
      ++turns;
      if (std::this_thread::get_id() == program) ++of_program;
      return posted.exchange(0) != 0 ? Progress::some : Progress::none;
    }
    ProxyInterest interest() const override { return {-1, 0, posted != 0}; }
    bool ending() const override { return false; }
    const std::thread::id program = std::this_thread::get_id();
    std::atomic<int> turns{0}, of_program{0}, posted{0};
  };
  const auto task = std::make_shared<Threads>();
  REQUIRE(of.engine->add(task));
  for (int n = 0; n < 100; ++n) {
    task->posted = 1;
    const detail::ProxyEngine::Helper helps{*of.engine};
    REQUIRE(wait_until([&] {
      detail::HostMemory::pause();
      return task->posted == 0;
    }));
  }
  CHECK(task->of_program == 0);
}

TEST_CASE("lanes run on a thread that is left behind in a call, and their launch ends") {
  Called of;
  const auto program = std::this_thread::get_id();
  std::atomic<int> runs{0};
  const auto run = [&](auto body) {
    of.engine->run_lanes([](void* given) { (*static_cast<decltype(body)*>(given))(); }, &body,
                         false);
  };
  run([&] { runs += std::this_thread::get_id() != program && detail::LibraryCalls::may_call(); });
  CHECK(runs == 1);
  CHECK_THROWS_AS(run([] { throw std::runtime_error{"lanes"}; }), std::runtime_error);

  of.library->holds = true;
  const auto library = of.library;
  const auto task = std::make_shared<CallingTask>(of.calls, of.library, 0.3);
  task->holds_lanes = true;
  REQUIRE(of.engine->add(task));
  const auto begin = Clock::now();
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  run([&, library, ended] {
    ++runs;
    while (!library->left) detail::HostMemory::pause();
    *ended = true;
  });
  CHECK(library->left);
  CHECK_FALSE(*ended);
  CHECK(seconds_since(begin) < 10);
  // The task fails nothing, and the launch, whose lane has not ended, must not succeed.
  REQUIRE_FALSE(of.status.ok());
  CHECK(of.status.result().error().what == "lanes are left");
  CHECK(of.status.result().error().rank == 4);
  CHECK(of.status.result().error().peer == 7);
  of.let_go();
  run([&] { ++runs; });
  CHECK(runs == 3);
}
