// A thread of a program forks at a random step of start-up, of collectives or of the end, while
// other threads call ccl. The child exits, calls ccl or executes another program. The ranks of the
// parent go on.
//
//   CAMPAIGN_SEED=7 CAMPAIGN_STEPS=200 ccl.test.comm.forks
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/unique_id.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>
#include <ccl/transport/socket.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/places.hpp"
#include "support/processes.hpp"
#include <sys/wait.h>

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int ranks = 2, rounds = 40;
constexpr Index count = 2000;
constexpr int at_once = 4;  // processes
#if defined(CCL_TEST_LONG)
constexpr int usual_steps = 200;
#else
constexpr int usual_steps = 48;
#endif

enum Child : int { exits, exits_at_once, calls, executes, kinds };
constexpr const char* names[kinds] = {"exit", "_exit", "calls", "exec"};

struct Step {
  bool tcp = false;
  Child child = exits;
  long place = 0;  // allocations and system calls of the process before the fork; 0: no fork
  bool in_rounds = false;  // rank 0 has a fork made between two collectives
};
struct Report {
  Places places;
  std::atomic<long> created_at{0};
  bool in_rounds = false;
  std::atomic<bool> fork_wanted{false}, forks{false}, forked{false}, over{false}, ended{false};
  std::atomic<int> child_used{0};  // handles of its parent
  Holdings before{}, after{};
  char verdict[800] = {};  // of the parent
  char child_verdict[800] = {};
};

// Of the process of a step.
Report* report = nullptr;
std::atomic<const Communicator*> handles[ranks];

void say(char (&to)[800], const std::string& text) {
  if (to[0] == 0) std::snprintf(to, sizeof to, "%s", text.c_str());
}

/// Publishes a handle for a child, which gets a copy of it.
class Published {
 public:
  explicit Published(const Communicator& comm) : at_{handles[comm.rank()]} { at_ = &comm; }
  ~Published() { at_ = nullptr; }
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

 private:
  std::atomic<const Communicator*>& at_;
};

template <class Transport>
Result<void> run_rank(const UniqueId& id, int rank) {
  Config config;
  config.device = Config::cpu;
  config.init_timeout_s = config.timeout_s = 30;
  CCL_TRY(const auto comm, Communicator::create(id, rank, ranks, config));
  const Published published{comm};
  using Sums = Collective<AllReduce, Tree, Simple, Transport>;
  CCL_TRY(const auto sum, Sums::create(comm));
  report->created_at = report->places.passed.load();
  std::vector<int> in(count, rank), out(count);
  for (int n = 0; n < rounds; ++n) {
    if (n == rounds / 2 && rank == 0 && report->in_rounds) {
      report->fork_wanted = true;
      (void)wait_until([] { return report->forked.load(); }, 30);
    }
    CCL_CHECK(sum(in.data(), out.data(), count));
    for (const int x : out) {
      if (x != 1) return fail(Errc::internal, "wrong sum");
    }
  }
  return comm.finalize();
}

/// Child that uses the handles of its parent, which is an error, and then its own.
std::string call_in_child() {
  for (const auto& handle : handles) {
    const Communicator* const comm = handle;
    if (comm == nullptr) continue;
    ++report->child_used;
    const auto misused = comm->barrier();
    if (misused) return "a barrier of the parent succeeds";
    if (misused.error().code != Errc::invalid_usage) return misused.error().message();
    comm->abort("a child's");
  }
  Config config;
  config.device = Config::cpu;
  const auto own = Communicator::create_all(ranks, config);
  if (!own) return own.error().message();
  Result<void> other;
  std::thread second{[&] { other = (*own)[1].barrier(); }};
  const Result<void> first = (*own)[0].barrier();
  second.join();
  for (const auto& done : {first, other}) {
    if (!done) return done.error().message();
  }
  return {};
}

[[noreturn]] void run_child(Child kind) {
  ::alarm(40);
  places = nullptr;
  if (kind == exits) std::exit(0);
  if (kind == exits_at_once) ::_exit(0);
  if (kind == calls) {
    const std::string why = call_in_child();
    say(report->child_verdict, why);
    ::_exit(why.empty() ? 0 : 1);
  }
  // The other program gets no descriptor of ccl's.
  const std::string look =
      fmt::format("test $(ls /proc/self/fd | wc -l) -le {} || {{ ls -l /proc/self/fd; false; }}",
                  report->before.files);
  ::execl("/bin/sh", "sh", "-c", look.c_str(), nullptr);
  ::_exit(3);
}

/// Thread at the place of the fork. The fork and what the thread does next race. A place after the
/// ranks' end, in a thread that closes what they had, has no fork any more.
void at_place() {
  report->fork_wanted = true;
  for (int n = 0; n < 1'000'000 && !report->forks && !report->over; ++n) {
    std::this_thread::yield();
  }
}

/// Thread that forks when another one wants it.
void fork_when_wanted(const Step& step) {
  while (!report->fork_wanted && !report->over) std::this_thread::yield();
  if (report->over) return;
  std::fflush(nullptr);
  report->forks = true;
  const pid_t pid = ::fork();
  if (pid == 0) run_child(step.child);
  report->forked = true;
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  say(report->child_verdict, WIFSIGNALED(status)
                                 ? fmt::format("the child ends by signal {}", WTERMSIG(status))
                                 : fmt::format("the child exits with {}", WEXITSTATUS(status)));
}

/// Runs the ranks, and the fork beside them.
int run_process(const Step& step) {
  report->before = Holdings::of_this_process();
  report->in_rounds = step.in_rounds;
  report->places.acts_at = step.place;
  report->places.act = &at_place;
  count_places(report->places);
  {
    std::thread forker{[&] {
      if (step.place > 0 || step.in_rounds) fork_when_wanted(step);
    }};
    const auto id = create_unique_id();
    std::vector<std::thread> threads;
    for (int r = 0; id && r < ranks; ++r) {
      threads.emplace_back([&, r] {
        const auto done =
            step.tcp ? run_rank<SocketTransport>(*id, r) : run_rank<ShmTransport>(*id, r);
        if (!done) say(report->verdict, fmt::format("rank {}: {}", r, done.error().message()));
      });
    }
    if (!id) say(report->verdict, id.error().message());
    for (auto& thread : threads) thread.join();
    report->over = true;
    forker.join();
  }
  (void)wait_until([&] { return Holdings::of_this_process().within(report->before); }, 15);
  report->after = Holdings::of_this_process();
  if (!report->after.within(report->before)) {
    say(report->verdict,
        fmt::format("{} descriptors and {} threads after {} and {}", report->after.files,
                    report->after.threads, report->before.files, report->before.threads));
  }
  report->ended = true;
  return 0;
}

struct Run {
  Step step;
  Shared<Report> shared{};
  pid_t pid = 0;
  void start() {
    pid = start_process([&] {
      report = &*shared;
      return run_process(step);
    });
  }
  void end() {
    const bool well = reap({pid}, 120);
    INFO((step.tcp ? "TCP" : "shm")
         << ", fork at place " << step.place << ", child: " << names[step.child] << "; "
         << shared->verdict << " " << shared->child_verdict);
    CHECK(well);
    CHECK(shared->ended.load());
    CHECK(std::string{shared->verdict} == "");
    CHECK(std::string{shared->child_verdict} == "");
  }
};

int number_of(const char* variable, int usual) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? usual : std::atoi(text);
}

}  // namespace

TEST_CASE("a program forks at any step: the child and the ranks of the parent end well") {
  const int seed = number_of("CAMPAIGN_SEED", int(::getpid()));
  const int steps = number_of("CAMPAIGN_STEPS", usual_steps);
  INFO("CAMPAIGN_SEED=" << seed);
  std::mt19937 random{unsigned(seed)};
  long created[2], end[2];
  for (const bool tcp : {false, true}) {
    Run plain{{.tcp = tcp}};
    plain.start();
    plain.end();
    created[tcp] = plain.shared->created_at;
    end[tcp] = plain.shared->places.passed;
  }
  std::vector<std::unique_ptr<Run>> running;
  int forked = 0, used = 0, starting = 0;
  const auto end_first = [&] {
    Run& first = *running.front();
    first.end();
    forked += first.shared->forked;
    used += first.shared->child_used > 0;
    starting += first.shared->forked && !first.step.in_rounds &&
                first.step.place < first.shared->created_at;
    running.erase(running.begin());
  };
  const auto begin = [&](const Step& step) {
    running.emplace_back(new Run{step});
    running.back()->start();
    if (running.size() == at_once) end_first();
  };
  for (const bool tcp : {false, true}) begin({.tcp = tcp, .child = calls, .in_rounds = true});
  for (int n = 0; n < steps; ++n) {
    const bool tcp = random() % 2 != 0, later = random() % 2 != 0;
    const long from = later ? created[tcp] : 0, to = later ? end[tcp] : created[tcp];
    const long place = from + 1 + long(random() % unsigned(to - from));
    begin({tcp, Child(random() % kinds), place});
  }
  while (!running.empty()) end_first();
  CHECK(used >= 2);  // the two in rounds
  CHECK(forked >= steps / 2);
  std::printf("seed %d: %d forks, %d of them during start-up; %d children used a handle\n", seed,
              forked, starting, used);
}
