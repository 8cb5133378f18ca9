#include <ccl/comm/unique_id.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>

#include "support/catch.hpp"
#include "support/held_port.hpp"
#include "support/job.hpp"
#include "support/lost_time.hpp"
#include "support/processes.hpp"

// A rank dies by kill -9. The others must get an error soon, with its name, and release all
// resources.
using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int ranks = 8;
constexpr int rounds = 20;
constexpr double limit_s = 5;          // from the kill to the slowest survivor's error
constexpr double creation_wait_s = 2;  // time until a rank that never connected is reported
constexpr double call_wait_s = 3;

struct Report {
  std::atomic<bool> created{false};
  std::atomic<int> steps{0};
  std::atomic<bool> failed{false};
  double failed_at = 0;  // steady clock
  Errc code = Errc::ok;
  int peer = -1;
  Holdings before{}, after{};
  char text[512] = {};
};
struct Board {
  double wait_scale = 1;        // of creation_wait_s and call_wait_s
  std::atomic<int> started{0};  // processes
  std::atomic<bool> rooted{false};
  int port = 0;
  Report report[ranks];
};

double now_s() {
  return seconds(Clock::now().time_since_epoch());
}

int run_rank(Board& board, int rank) {
  const Holdings before = Holdings::of_this_process();
  Report& report = board.report[rank];
  const auto work = [&]() -> Result<void> {
    ++board.started;
    (void)wait_until([&] { return board.started == ranks; }, 20);
    CCL_TRY(const auto id, unique_id_at(fmt::format("127.0.0.1:{}", board.port), "kill test"));
    if (rank == 0) {
      CCL_CHECK(start_root(id, 0));
      board.rooted = true;
    }
    CCL_TRY(auto job, Job::create(id, rank, ranks, board.wait_scale * creation_wait_s,
                                  board.wait_scale * call_wait_s));
    report.created = true;
    for (;;) {
      CCL_CHECK(job.step());
      ++report.steps;
    }
  };
  const auto end = work();
  report.failed_at = now_s();
  report.code = end.error().code;
  report.peer = end.error().peer;
  std::snprintf(report.text, sizeof report.text, "%s", end.error().message().c_str());
  wait_until([&] { return Holdings::of_this_process().within(before); }, 20);
  report.before = before;
  report.after = Holdings::of_this_process();
  report.failed = true;
  return 0;
}

struct Outcome {
  double slowest_s = 0;
  bool during_creation = false;
  bool missed = false;  // true: a survivor's error was only that the victim was missing
};

/// Kills `victim` when `moment(board)` is true. Again, with longer waits, if the machine was so
/// busy that a survivor missed another one.
template <class Moment>
Outcome play(int victim, Moment&& moment, double wait_scale = 1) {
  Shared<Board> board;
  board->wait_scale = wait_scale;
  const HeldPort port;
  board->port = port.number();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start_process([&, rank] { return run_rank(*board, rank); }));
  }
  moment(*board);
  Outcome outcome;
  for (const Report& report : board->report) outcome.during_creation |= !report.created;
  const LostTime lost;
  const double killed_at = now_s();
  kill(pids[std::size_t(victim)], SIGKILL);
  CHECK(reap(pids, 60, pids[std::size_t(victim)]));
  const auto misses_another = [&](const Report& report) {
    return report.code == Errc::timed_out && report.peer != victim;
  };
  if (wait_scale < 8 && std::any_of(board->report, board->report + ranks, misses_another)) {
    return play(victim, moment, 2 * wait_scale);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == victim) continue;
    const Report& report = board->report[rank];
    INFO("rank " << rank << " of " << ranks << ", rank " << victim << " was killed; "
                 << report.text);
    CHECK(report.failed);
    // A rank that is killed before it contacts another rank is missing, not lost.
    const bool missed = outcome.during_creation && report.code == Errc::timed_out;
    CHECK((report.code == Errc::peer_lost || missed));
    outcome.missed |= missed;
    outcome.slowest_s = std::max(outcome.slowest_s, report.failed_at - killed_at);
    CHECK(report.peer == victim);
    CHECK(report.failed_at - killed_at < wait_scale * limit_s + lost.seconds());
    // If a rank never connected, the root stays for a minute to send it the reason.
    if (rank == 0 && outcome.during_creation) continue;
    CHECK(report.after.files <= report.before.files);
    CHECK(report.after.threads <= report.before.threads);
  }
  return outcome;
}

/// Returns the seconds in which eight ranks connect on this machine.
double creation_s() {
  const double start = now_s();
  double end = 0;
  play(ranks - 1, [&](Board& board) {
    wait_until(
        [&] {
          return std::all_of(board.report, board.report + ranks,
                             [](const Report& r) { return r.created.load(); });
        },
        60);
    end = now_s();
  });
  return end - start;
}
}  // namespace

TEST_CASE("survivors name a rank that is killed while ranks find each other") {
  std::mt19937 random{20};
  const auto segments = own_segments();
  double whole_s = creation_s();
  double slowest_s = 0;
  int during_creation = 0, missed = 0, kills = 0;
  for (; kills < rounds || (during_creation < rounds / 4 && kills < 5 * rounds); ++kills) {
    const int victim = int(random() % ranks);
    const double delay_s = whole_s * double(random() % 1000) / 1000;
    const Outcome outcome = play(victim, [&](Board& board) {
      wait_until([&] { return board.rooted.load(); }, 60);
      sleep_s(delay_s);
    });
    slowest_s = std::max(slowest_s, outcome.slowest_s);
    during_creation += outcome.during_creation;
    missed += outcome.missed;
    // The first creation may have had to share its cores, and those that follow not.
    if (!outcome.during_creation) whole_s *= 0.9;
  }
  CHECK(during_creation >= rounds / 4);
  CHECK(own_segments() == segments);
  std::printf(
      "%d kills, %d before all ranks had joined (%.0f ms), %d of these before the victim had "
      "spoken; "
      "slowest error after %.0f ms\n",
      kills, during_creation, 1e3 * whole_s, missed, 1e3 * slowest_s);
}

TEST_CASE("survivors name a rank that is killed while data moves") {
  std::mt19937 random{40};
  const auto segments = own_segments();
  double slowest_s = 0;
  for (int round = 0; round < rounds; ++round) {
    const int victim = int(random() % ranks);
    const int step = 1 + int(random() % 50);
    const Outcome outcome = play(victim, [&](Board& board) {
      wait_until([&] { return board.report[victim].steps >= step; }, 60);
      sleep_s(double(random() % 1000) * 1e-6);
    });
    CHECK(!outcome.during_creation);
    slowest_s = std::max(slowest_s, outcome.slowest_s);
  }
  CHECK(own_segments() == segments);
  std::printf("%d kills; slowest error after %.0f ms\n", rounds, 1e3 * slowest_s);
}
