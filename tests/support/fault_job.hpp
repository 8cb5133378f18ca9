#pragma once

// Jobs of four processes in which one fault is injected, and the line or the error that names it.
// What a rank calls is a type of the test; support/fault_calls.hpp has one.
#include <ccl/comm/communicator.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/comm/report.hpp>

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/processes.hpp"

namespace ccl::test::faults {

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
  std::array<std::atomic<int>, ranks> peer{}, code{};  // of each rank's error
  std::atomic<double> failed_at{0};                    // the last of the others than the victim
  // Bits of ranks, for faults that do not state which of them must be named.
  std::atomic<unsigned> may_be_behind{0};
  char error[256] = {};        // of the rank that wrote last
  std::atomic<int> stalls{0};  // ranks whose `stall` has the cause
  std::atomic<int> stall_cause{0}, stall_behind{-1};
};

inline double now_s() {
  return seconds(Clock::now().time_since_epoch());
}
inline void fires(Board& board) {
  board.fired_at = now_s();
  ++board.fired;
}
inline void wait_for_the_end(const Board& board) {
  (void)wait_until([&] { return board.over.load(); }, give_up_s + 60);
}

/// Ranks of the CPU: their memory, and how a call ends.
struct CpuRank {
  template <class T>
  using Array = std::vector<T>;
  static Config config(int) {
    Config config;
    config.device = Config::cpu;
    return config;
  }
  /// The id of a job; the process that starts its ranks makes it.
  static UniqueId id() { return create_unique_id().value(); }
  /// The first step of a rank's process.
  static void begin(int, const UniqueId&) {}
  static void enter(const Communicator&) {}
  /// The result of a call when it has ended, which this one has.
  static Result<void> ended(const Communicator&, Result<void> call) { return call; }
};

/// One fault: what each rank does after three all-reduces that go well.
template <class C>
using Body = std::function<Result<void>(C&)>;

struct Expected {
  Cause cause;
  int behind = victim;        // -1: one of `Board::may_be_behind`
  const char* text = "";      // a part of the line
  double limit_s = 0;         // CCL_REPORT_STALL; 0: the default
  Cause other = Cause::none;  // which is right, too

  bool allows(Cause named) const {
    return named == cause || (named == other && named != Cause::none);
  }
  /// True if the fault may be laid at a rank. A circle is no rank's fault: all bits are 0.
  bool allows(const Board& board, int rank) const {
    if (behind >= 0) return rank == behind;
    return board.may_be_behind == 0 || (rank >= 0 && (board.may_be_behind >> rank & 1) != 0);
  }
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
  Config config = C::config(rank);
  config.name = "job";
  CCL_TRY(const auto comm, Communicator::create(board.id, rank, ranks, config));
  CCL_TRY(const auto calls, C::create(comm, board));
  for (int n = 0; n < 3; ++n) CCL_CHECK(calls->sum());
  CCL_CHECK(body(*calls));
  wait_for_the_end(board);
  return {};
}

/// Shows what `Communicator::stall` returns while `body` waits.
inline void look_at_stall(const Communicator& comm, Board& board) {
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
  job.board->id = C::id();
  unlink(job.file.c_str());
  for (int r = 0; r < ranks; ++r) {
    job.pids.push_back(start_process([&, r] {
      C::begin(r, job.board->id);
      setenv("CCL_DEBUG_FILE", job.file.c_str(), 1);
      setenv("CCL_DEBUG", level, 1);
      // By default, TCP gives a silent link up after 30 s. On a loaded machine, that may be before
      // the watchdog writes its line.
      setenv("CCL_BOOTSTRAP_KEEPALIVE", "100", 1);
      if (limit_s > 0) setenv("CCL_REPORT_STALL", fmt::format("{}", limit_s).c_str(), 1);
      log_reload();
      std::thread looks;
      const Body<C> watched = [&](C& calls) -> Result<void> {
        looks = std::thread{[comm = calls.comm, &job] { look_at_stall(comm, *job.board); }};
        return body(calls);
      };
      const auto done = run_rank<C>(*job.board, r, watched);
      if (!done) {
        if (r != victim) job.board->failed_at = now_s();
        job.board->peer[std::size_t(r)] = done.error().peer;
        job.board->code[std::size_t(r)] = int(done.error().code);
      }
      if (!done) {
        const std::string text = fmt::format("rank {}: {}", r, done.error().message());
        text.copy(job.board->error, sizeof job.board->error - 1);
      }
      ++(done ? job.board->ended_well : job.board->ended_badly);
      if (looks.joinable()) looks.join();
      return 0;
    }));
  }
}

/// Row of the table: what was named, and after which time.
struct Named {
  std::string fault, cause;
  bool right = false;  // exactly one line, or an error, with the right rank and cause
  double took_s = 0;
};
/// Rows of all faults that this program has played.
inline std::vector<Named>& table() {
  static std::vector<Named> rows;
  return rows;
}
inline void add_row(const char* fault, int behind, std::string cause, bool right, double took_s) {
  std::printf("| %s | %d | %s | %.1f |%s\n", fault, behind, cause.c_str(), took_s,
              right ? "" : " WRONG");
  table().push_back({fault, std::move(cause), right, took_s});
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
  INFO(job.text() << job.board->error);
  REQUIRE(said);
  auto lines = job.lines();
  lines.erase(lines.begin(), lines.begin() + std::ptrdiff_t(before));
  bool right = lines.size() == 1;
  for (const std::string& line : lines) {
    const auto names_one_at_fault = [&] {
      for (int r = 0; r < ranks; ++r) {
        if (expected.allows(*job.board, r) && mentions(line, fmt::format("rank {} ", r).c_str())) {
          return true;
        }
      }
      return false;
    };
    const auto names = [&](Cause cause) {
      return mentions(line, fmt::format("[{}, communicator job", name(cause)).c_str());
    };
    right = right && (names(expected.cause) || names(expected.other)) &&
            mentions(line, expected.text) && names_one_at_fault();
  }
  const bool at_a_rank = expected.behind >= 0 || job.board->may_be_behind != 0;
  if (before == 0 && at_a_rank) {
    right = right && job.board->stalls == 1 &&
            expected.allows(Cause(job.board->stall_cause.load())) &&
            expected.allows(*job.board, job.board->stall_behind);
  }
  CHECK(right);
  const int named = at_a_rank ? job.board->stall_behind.load() : -1;
  add_row(fault, expected.behind >= 0 ? expected.behind : named, std::string{name(expected.cause)},
          right, took_s);
}

/// Plays one fault that is an error of all other ranks at once, each of which names the victim,
/// without a line of the watchdog. `other` is the error of ranks that do not notice it by
/// themselves; one rank at least must.
template <class C>
void fails(const char* fault, Errc code, const Body<C>& body, Errc other = Errc::ok) {
  INFO(fault);
  Job job;
  start<C>(job, 0, body);
  const auto all_others_failed = [&] {
    for (int r = 0; r < ranks; ++r) {
      if (r != victim && job.board->code[std::size_t(r)] == 0) return false;
    }
    return true;
  };
  REQUIRE(wait_until(all_others_failed, give_up_s));
  INFO(job.text());
  REQUIRE(job.board->fired == 1);
  bool right = job.lines().empty(), noticed = false;
  for (int r = 0; r < ranks; ++r) {
    if (r == victim) continue;
    const auto named = Errc(job.board->code[std::size_t(r)].load());
    const int peer = job.board->peer[std::size_t(r)];
    UNSCOPED_INFO("rank " << r << ": error " << name(named) << " of rank " << peer);
    right = right && peer == victim && (named == code || (named == other && other != Errc::ok));
    noticed = noticed || named == code;
  }
  right = right && noticed;
  CHECK(right);
  add_row(fault, victim, fmt::format("Errc::{}", name(code)), right,
          job.board->failed_at - job.board->fired_at);
}

}  // namespace ccl::test::faults
