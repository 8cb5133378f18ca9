// Faults of jobs that the watchdog must explain by itself: the rank at fault, and the cause. Each
// rank is a process, and the log is what a user sees.
//
//   ccl.test.comm.watchdog "faults of*"    prints the table of docs/validation/diagnosis.md
#include <ccl/ccl.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/transport/socket.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/log_of.hpp"
#include "support/processes.hpp"
#include <linux/filter.h>
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int ranks = 4;
constexpr int victim = 2;
constexpr Index count = 1000;
constexpr double give_up_s = 120;  // of a line that must come; it comes after some seconds

/// What the processes of a job share with the test.
struct Board {
  UniqueId id;
  std::atomic<int> fired{0};        // ranks at which the fault has happened
  std::atomic<double> fired_at{0};  // seconds
  std::atomic<bool> over{false};
  std::atomic<int> ended_well{0}, ended_badly{0};
  std::atomic<int> peer{-1}, code{0};  // of the first error
  std::atomic<double> failed_at{0};
  std::atomic<int> stalls{0};  // ranks whose `stall` has the cause
  std::atomic<int> stall_cause{0}, stall_behind{-1};
};

double now_s() {
  return seconds(Clock::now().time_since_epoch());
}
void fires(Board& board) {
  board.fired_at = now_s();
  ++board.fired;
}
void wait_for_the_end(const Board& board) {
  (void)wait_until([&] { return board.over.load(); }, give_up_s + 60);
}

/// Handles of one rank, and compositions that all faults use.
template <class Transport>
struct Calls {
  using Sums = Collective<AllReduce, Ring, Simple, Transport>;
  using LLSums = Collective<AllReduce, Ring, LL, Transport>;
  using Copies = Collective<Broadcast, Ring, Simple, Transport>;
  using Messages = Collective<SendRecv, Pairwise, Simple, Transport>;
  Communicator comm;
  Board& board;
  Sums sums;
  LLSums ll_sums;
  Copies copies;
  Messages messages;
  std::vector<float> x = std::vector<float>(400'000, 1.f), y = std::vector<float>(400'000);
  std::vector<double> dx = std::vector<double>(400'000, 1.), dy = std::vector<double>(400'000);

  static Result<std::unique_ptr<Calls>> create(const Communicator& comm, Board& board) {
    CCL_TRY(auto sums, Sums::create(comm));
    CCL_TRY(auto ll_sums, LLSums::create(comm));
    CCL_TRY(auto copies, Copies::create(comm));
    CCL_TRY(auto messages, Messages::create(comm));
    return std::unique_ptr<Calls>{new Calls{comm, board, std::move(sums), std::move(ll_sums),
                                            std::move(copies), std::move(messages)}};
  }
  Result<void> sum(Index n = count) { return sums(x.data(), y.data(), n); }
  bool is_victim() const { return comm.rank() == victim; }
};
using Shm = Calls<DefaultTransport>;
using Tcp = Calls<SocketTransport>;

/// One fault: what each rank does after three all-reduces that go well.
template <class C>
using Body = std::function<Result<void>(C&)>;

struct Expected {
  Cause cause;
  int behind = victim;
  const char* text = "";  // a part of the line
  double limit_s = 0;     // CCL_REPORT_STALL; 0: the default
};

struct Job {
  Shared<Board> board;
  std::vector<pid_t> pids;
  std::string file = fmt::format("/tmp/ccl-watch-{}.log", getpid());
  std::string text() const {
    std::ifstream in{file};
    return {std::istreambuf_iterator<char>{in}, {}};
  }
  /// Lines of the watchdog.
  std::vector<std::string> lines() const {
    std::vector<std::string> found;
    std::ifstream in{file};
    for (std::string line; std::getline(in, line);) {
      if (mentions(line, "no progress for") && mentions(line, " WARN ")) found.push_back(line);
    }
    return found;
  }
  ~Job() {
    board->over = true;
    for (const pid_t pid : pids) {
      kill(pid, SIGKILL);
      kill(pid, SIGCONT);
    }
    (void)reap(pids, 20);
    unlink(file.c_str());
  }
};

template <class C>
Result<void> run_rank(Board& board, int rank, const Body<C>& body) {
  Config config;
  config.device = Config::cpu;
  config.name = "job";
  CCL_TRY(const auto comm, Communicator::create(board.id, rank, ranks, config));
  CCL_TRY(const auto calls, C::create(comm, board));
  for (int n = 0; n < 3; ++n) CCL_CHECK(calls->sum());
  CCL_CHECK(body(*calls));
  wait_for_the_end(board);
  return {};
}

/// Shows what `Communicator::stall` returns while `body` waits.
void look_at_stall(const Communicator& comm, Board& board) {
  bool seen = false;
  while (!board.over) {
    const Report report = comm.stall();
    if (!seen && report.behind >= 0) {
      seen = true;
      board.stall_cause = int(report.cause);
      board.stall_behind = report.behind;
      ++board.stalls;
    }
    sleep_s(0.05);
  }
}

template <class C>
void start(Job& job, double limit_s, const Body<C>& body, const char* level = "WARN") {
  job.board->id = create_unique_id().value();
  unlink(job.file.c_str());
  for (int r = 0; r < ranks; ++r) {
    job.pids.push_back(start_process([&, r] {
      setenv("CCL_DEBUG_FILE", job.file.c_str(), 1);
      setenv("CCL_DEBUG", level, 1);
      // By default, TCP gives a silent link up after 4 s, about when the watchdog writes its line.
      setenv("CCL_BOOTSTRAP_KEEPALIVE", "100", 1);
      if (limit_s > 0) setenv("CCL_REPORT_STALL", fmt::format("{}", limit_s).c_str(), 1);
      log_reload();
      std::thread looks;
      const Body<C> watched = [&](C& calls) -> Result<void> {
        looks = std::thread{[comm = calls.comm, &job] { look_at_stall(comm, *job.board); }};
        return body(calls);
      };
      const auto done = run_rank<C>(*job.board, r, watched);
      if (!done && job.board->failed_at == 0) {
        job.board->failed_at = now_s();
        job.board->peer = done.error().peer;
        job.board->code = int(done.error().code);
      }
      ++(done ? job.board->ended_well : job.board->ended_badly);
      if (looks.joinable()) looks.join();
      return 0;
    }));
  }
}

/// Plays one fault, and checks that the watchdog names it.
template <class C>
void play(const char* fault, const Expected& expected, const Body<C>& body) {
  INFO(fault);
  Job job;
  start<C>(job, expected.limit_s, body);
  REQUIRE(wait_until([&] { return job.board->fired > 0; }, give_up_s));
  // On a loaded machine, a rank can be late before the fault.
  const std::size_t before = job.lines().size();
  const bool said = wait_until([&] { return job.lines().size() > before; }, give_up_s);
  const double took_s = now_s() - job.board->fired_at;
  (void)wait_until([&] { return job.board->stalls > 0; }, 10);
  sleep_s(1.5);  // for lines that must not come
  INFO(job.text());
  REQUIRE(said);
  auto lines = job.lines();
  lines.erase(lines.begin(), lines.begin() + std::ptrdiff_t(before));
  CHECK(lines.size() == 1);
  for (const std::string& line : lines) {
    CHECK(mentions(line, fmt::format("[{}, communicator job", name(expected.cause)).c_str()));
    CHECK(mentions(line, expected.text));
    if (expected.behind >= 0) {
      CHECK(mentions(line, fmt::format("rank {} ", expected.behind).c_str()));
    }
  }
  if (before == 0 && expected.behind >= 0) {
    CHECK(job.board->stalls == 1);
    CHECK(job.board->stall_cause == int(expected.cause));
    CHECK(job.board->stall_behind == expected.behind);
  }
  std::printf("| %s | %d | %s | %.1f |\n", fault, expected.behind,
              std::string{name(expected.cause)}.c_str(), took_s);
}

}  // namespace

TEST_CASE("faults of calls: a rank does not call, or calls something else") {
  play<Shm>("does not call", {Cause::not_called, victim, "has not called operation 4", 4},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  play<Shm>("another count", {Cause::other_count}, [](Shm& calls) -> Result<void> {
    if (calls.is_victim()) fires(calls.board);
    return calls.sum(calls.is_victim() ? 1000 : 400'000);
  });
#if defined(CCL_TEST_LONG)  // the short test of diagnose() has these
  play<Shm>("another type", {Cause::other_type}, [](Shm& calls) -> Result<void> {
    if (!calls.is_victim()) return calls.sum(400'000);
    fires(calls.board);
    return calls.sums(calls.dx.data(), calls.dy.data(), 400'000);
  });
  // The operation itself completes, with a wrong result.
  play<Shm>("another reduction", {Cause::other_reduction, victim, "float, max"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) {
                CCL_CHECK(calls.sum());
                return calls.sum();
              }
              CCL_CHECK(calls.sums(calls.x.data(), calls.y.data(), count, Max{}));
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  play<Shm>("another root", {Cause::other_root, 0, "root 2"}, [](Shm& calls) -> Result<void> {
    if (calls.comm.rank() == 0) fires(calls.board);
    return calls.copies(calls.x.data(), calls.y.data(), 400'000, calls.comm.rank() == 0 ? 2 : 0);
  });
  play<Shm>(
      "two operations in another order", {Cause::other_operation}, [](Shm& calls) -> Result<void> {
        const auto other = [&] { return calls.ll_sums(calls.x.data(), calls.y.data(), count); };
        if (!calls.is_victim()) {
          CCL_CHECK(calls.sum());
          return other();
        }
        fires(calls.board);
        CCL_CHECK(other());
        return calls.sum();
      });
  play<Shm>("another operation", {Cause::other_operation, victim, "called broadcast"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              return calls.copies(calls.x.data(), calls.y.data(), count, 0);
            });
  play<Shm>("leaves out an operation", {Cause::other_operation, victim, "as operation 4"},
            [](Shm& calls) -> Result<void> {
              if (calls.is_victim()) fires(calls.board);
              if (!calls.is_victim()) CCL_CHECK(calls.sum());
              return calls.ll_sums(calls.x.data(), calls.y.data(), count);
            });
  play<Shm>("a barrier in place of an operation",
            {Cause::other_operation, victim, "called barrier"}, [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              return calls.comm.barrier();
            });
  play<Shm>("does not call a barrier",
            {Cause::not_called, victim, "has not called operation 4 (barrier)", 4},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.comm.barrier();
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  play<Shm>("sends no message", {Cause::not_called, victim, "rank 0 waits for it at step 0", 4},
            [](Shm& calls) -> Result<void> {
              if (calls.is_victim()) fires(calls.board);
              if (calls.comm.rank() == 0) return calls.messages.recv(calls.y.data(), count, victim);
              return {};
            });
  play<Shm>("a circle of receives", {Cause::circle, -1, "wait for each other in a circle", 4},
            [](Shm& calls) -> Result<void> {
              if (calls.is_victim()) fires(calls.board);
              const int next = (calls.comm.rank() + 1) % ranks;
              CCL_CHECK(calls.messages.recv(calls.y.data(), count, next));
              return calls.messages.send(calls.x.data(), count, (next + 2) % ranks);
            });
#endif
}

TEST_CASE("faults of ranks: finalize, another communicator, a stream with other work") {
  play<Shm>("is in finalize", {Cause::other_step, victim, "it is in finalize"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              return calls.comm.finalize();
            });
  play<Shm>("does not call finalize",
            {Cause::not_called, victim, "has not called finalize (its last is operation 3", 4},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.comm.finalize();
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  // Rank 0 has asked for a message before, which rank 1 sends at the end.
  play<Shm>("does not call, where a receive waits on purpose",
            {Cause::not_called, victim, "has not called operation 4", 4},
            [](Shm& calls) -> Result<void> {
              HostStream stream;
              float word = 0;
              if (calls.comm.rank() == 0) {
                CCL_CHECK(calls.messages.recv(&word, 1, 1, stream));
                sleep_s(0.5);
              }
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
#if defined(CCL_TEST_LONG)
  play<Shm>("is in split", {Cause::other_step, victim, "it is in split"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              CCL_TRY(const auto part, calls.comm.split(0, 0));
              return {};
            });
  play<Shm>("creates a composition", {Cause::other_step, victim, "it is in"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              CCL_TRY(const auto sums, Shm::Sums::create(calls.comm));
              return {};
            });
#endif
  // Of all ranks, and of ranks 0 and 2. In the pair, rank 0 is late as in a usual pause.
  play<Shm>(
      "a circle of two communicators",
      {Cause::communicators, victim, "of communicator pair of 2 ranks, where it waits for rank 0"},
      [](Shm& calls) -> Result<void> {
        const bool in_pair = calls.comm.rank() % 2 == 0;
        Config config;
        config.device = Config::cpu;
        config.name = "pair";
        CCL_TRY(const auto pair, calls.comm.split(in_pair ? 0 : -1, 0, config));
        if (!in_pair) return calls.sum();
        CCL_TRY(const auto sums, Shm::Sums::create(*pair));
        if (!calls.is_victim()) return calls.sum();
        fires(calls.board);
        return sums(calls.x.data(), calls.y.data(), count);
      });
  play<Shm>("is queued behind other work of its stream",
            {Cause::queued, victim, "has not begun operation 4", 4},
            [](Shm& calls) -> Result<void> {
              HostStream stream;
              if (calls.is_victim()) {
                stream.enqueue([&board = calls.board]() -> Result<void> {
                  fires(board);
                  wait_for_the_end(board);
                  return {};
                });
              }
              CCL_CHECK(calls.sums(calls.x.data(), calls.y.data(), count, Sum{}, stream));
              return stream.synchronize();
            });
}

TEST_CASE("faults of processes: stopped, killed") {
  play<Shm>("is stopped", {Cause::no_answer, victim, "does not answer"},
            [](Shm& calls) -> Result<void> {
              if (calls.is_victim()) {
                fires(calls.board);
                raise(SIGSTOP);
              }
              return calls.sum();
            });
#if defined(CCL_TEST_LONG)
  play<Tcp>("is stopped, over TCP", {Cause::no_answer, victim, "does not answer"},
            [](Tcp& calls) -> Result<void> {
              if (calls.is_victim()) {
                fires(calls.board);
                raise(SIGSTOP);
              }
              return calls.sum();
            });
#endif
  SECTION("a killed one is an error of all others at once, without a line") {
    Job job;
    start<Shm>(job, 0, [](Shm& calls) -> Result<void> {
      if (calls.is_victim()) {
        fires(calls.board);
        raise(SIGKILL);
      }
      return calls.sum();
    });
    REQUIRE(wait_until([&] { return job.board->ended_badly == ranks - 1; }, give_up_s));
    CHECK(job.board->fired == 1);
    CHECK(job.board->peer == victim);
    CHECK(job.board->code == int(Errc::peer_lost));
    CHECK(job.lines().empty());
    std::printf("| is killed | %d | Errc::peer_lost | %.1f |\n", job.board->peer.load(),
                job.board->failed_at - job.board->fired_at);
  }
}

namespace {

std::map<int, std::string> tcp_sockets() {
  std::map<int, std::string> found;
  for (const std::string& text : list_dir("/proc/self/fd")) {
    const int fd = std::atoi(text.c_str());
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        (peer.ss_family == AF_INET || peer.ss_family == AF_INET6)) {
      char path[128] = {};
      (void)!::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path, sizeof path - 1);
      found[fd] = path;
    }
  }
  return found;
}

/// Lets the network stack drop all that arrives at a socket. The other end gets no answer.
bool silence(int fd) {
  sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &drop};
  return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

/// Task of a proxy that never returns, as if its thread had no CPU.
struct Holds final : ProxyTask {
  explicit Holds(Board& of) : board{of} {}
  Progress progress(ProxyCounters&) override {
    if (!begun) fires(board);
    begun = true;
    wait_for_the_end(board);
    return Progress::none;
  }
  ProxyInterest interest() const override { return {.pending = true}; }
  bool ending() const override { return false; }
  Board& board;
  bool begun = false;
};

}  // namespace

TEST_CASE("faults of networks: a silent link, a proxy that does not run") {
  play<Tcp>("a link delivers nothing", {Cause::silent_link, 1, "does not deliver"},
            [](Tcp& calls) -> Result<void> {
              CCL_CHECK(calls.comm.barrier());
              if (calls.is_victim()) {
                // The ring's data sockets come from rank 1 and go to rank 3.
                const auto before = tcp_sockets();
                CCL_TRY(const auto late, Tcp::Sums::create(calls.comm));
                int silenced = 0;
                for (const auto& [fd, text] : tcp_sockets()) {
                  const auto old = before.find(fd);
                  if (old != before.end() && old->second == text) continue;
                  silenced += silence(fd);
                }
                if (silenced > 0) fires(calls.board);
                return late(calls.x.data(), calls.y.data(), count);
              }
              CCL_TRY(const auto late, Tcp::Sums::create(calls.comm));
              return late(calls.x.data(), calls.y.data(), count);
            });
  play<Tcp>("a proxy does not run", {Cause::stuck_proxy, victim, "has not run for"},
            [](Tcp& calls) -> Result<void> {
              if (calls.is_victim()) {
                auto& proxy = detail::Access::state(calls.comm)->proxy;
                CCL_CHECK(proxy.add(std::make_shared<Holds>(calls.board)));
                (void)wait_until([&] { return calls.board.fired > 0; }, give_up_s);
              }
              return calls.sum();
            });
}

namespace {

/// Runs all-reduces for `job_s` seconds. Now and then rank 2 pauses for `pause_s`.
Result<void> run_with_pauses(Shm& calls, double job_s, const std::vector<double>& pauses_s) {
  const double until = now_s() + job_s;
  for (std::size_t n = 0; now_s() < until; ++n) {
    for (int i = 0; i < 200; ++i) CCL_CHECK(calls.sum());
    CCL_CHECK(calls.sum(400'000));
    if (calls.is_victim()) {
      sleep_s(std::min(pauses_s[n % pauses_s.size()], std::max(0., until - now_s())));
      ++calls.board.fired;
    }
    // All ranks end after the same call.
    float goes = now_s() < until ? 1 : 0, all = 0;
    CCL_CHECK(calls.sums(&goes, &all, 1, Min{}));
    if (all == 0) break;
  }
  return {};
}

}  // namespace

TEST_CASE("ranks that are late on purpose draw no line") {
#if defined(CCL_TEST_LONG)
  const double usual_s = 400;
  const std::vector<double> pauses_s{1, 60, 5, 20, 0, 60, 10};
#else
  const double usual_s = 12;
  const std::vector<double> pauses_s{8};
#endif
  const char* const given = std::getenv("SOAK_S");
  const double soak_s = given != nullptr ? std::atof(given) : usual_s;
  Job job;
  setenv("CCL_DEBUG_SUBSYS", "COLL", 1);
  start<Shm>(
      job, 0,
      [&](Shm& calls) -> Result<void> {
        CCL_CHECK(run_with_pauses(calls, soak_s, pauses_s));
        ++calls.board.ended_well;
        return {};
      },
      "INFO");
  unsetenv("CCL_DEBUG_SUBSYS");
  CHECK(wait_until([&] { return job.board->ended_well >= ranks || job.board->ended_badly > 0; },
                   soak_s + give_up_s));
  const std::string text = job.text();
  INFO(text.substr(0, 2000));
  CHECK(job.board->ended_badly == 0);
  CHECK(job.board->fired > 0);
  CHECK(job.lines().empty());
  int asked = 0;  // the pauses were long enough to be looked at
  for (std::size_t at = 0; (at = text.find("asks all ranks", at)) != text.npos; ++at) ++asked;
  CHECK(asked > 0);
  std::printf("%d pauses in %.0f s, the others asked %d times, no line\n", job.board->fired.load(),
              soak_s, asked);
}

TEST_CASE("time for which the whole job is suspended is no pause") {
  Job job;
  start<Shm>(job, 4, [](Shm& calls) -> Result<void> {
    if (calls.is_victim()) {
      fires(calls.board);
      for (int n = 0; n < 30; ++n) sleep_s(0.1);  // 3 s in which it runs
    }
    CCL_CHECK(calls.sum());
    ++calls.board.ended_well;
    return {};
  });
  REQUIRE(wait_until([&] { return job.board->fired > 0; }, give_up_s));
  sleep_s(1);
  for (const pid_t pid : job.pids) kill(pid, SIGSTOP);
  sleep_s(8);
  for (const pid_t pid : job.pids) kill(pid, SIGCONT);
  CHECK(wait_until([&] { return job.board->ended_well >= ranks; }, give_up_s));
  INFO(job.text());
  CHECK(job.lines().empty());
}

TEST_CASE("ranks that are threads of one process draw one line, and it is withdrawn") {
  const pid_t pid = start_process([&]() -> int {
    setenv("CCL_REPORT_STALL", "1", 1);
    std::atomic<bool> go{false};
    std::string text;
    int found = 0;
    text = log_of([&] {
      Config config;
      config.device = Config::cpu;
      const auto comms = Communicator::create_all(3, config);
      if (!comms) return;
      std::vector<std::thread> threads;
      for (int r = 0; r < 3; ++r) {
        threads.emplace_back([&, r] {
          const auto sums = Shm::Sums::create((*comms)[std::size_t(r)]);
          float x = 1, y = 0;
          while (r == 1 && !go) sleep_s(0.01);
          if (!sums || !(*sums)(&x, &y, 1) || y != 3) found = -100;
        });
      }
      const auto behind = [&] {
        for (const Communicator& comm : *comms) {
          const Report report = comm.stall();
          if (report.behind == 1 && report.cause == Cause::not_called) return true;
        }
        return false;
      };
      // Communicators that end meanwhile must not disturb it.
      const bool seen = wait_until(
          [&] {
            (void)Communicator::create_all(2, config);
            return behind();
          },
          give_up_s);
      sleep_s(1.2);  // the others look, too
      go = true;
      for (auto& thread : threads) thread.join();
      found += seen && wait_until([&] { return !behind(); }, give_up_s);
    });
    std::size_t lines = 0;
    for (std::size_t at = 0; (at = text.find("WARN COLL no progress", at)) != text.npos; ++at) {
      ++lines;
    }
    if (found != 1 || lines != 1) std::printf("%d %zu\n%s\n", found, lines, text.c_str());
    return found == 1 && lines == 1 ? 0 : 1;
  });
  CHECK(reap({pid}, 2 * give_up_s));
}

TEST_CASE("with CCL_REPORT_STALL=0 nothing is asked or logged") {
  Job job;
  setenv("CCL_REPORT_STALL", "0", 1);
  setenv("CCL_DEBUG_SUBSYS", "COLL", 1);
  start<Shm>(
      job, 0,
      [](Shm& calls) -> Result<void> {
        if (!calls.is_victim()) return calls.sum();
        fires(calls.board);
        return calls.comm.finalize();
      },
      "INFO");
  unsetenv("CCL_REPORT_STALL");
  unsetenv("CCL_DEBUG_SUBSYS");
  REQUIRE(wait_until([&] { return job.board->fired > 0; }, give_up_s));
  sleep_s(6);  // with the watchdog, a line comes after 4 s
  INFO(job.text());
  CHECK(job.lines().empty());
  CHECK_FALSE(mentions(job.text(), "asks all ranks"));
}
