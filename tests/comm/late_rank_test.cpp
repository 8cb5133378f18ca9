// Report to all ranks when one of them falls behind: its rank, its operation and its step.

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "support/calls/rings.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/on_ranks.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int ranks = 4;
constexpr int victim = 2;
/// Seconds of a wait. On an idle machine lanes record the peer of their wait after a quarter of a
/// second.
constexpr double wait_limit_s = 2;
/// Seconds by which other tests on the same cores may delay a report.
constexpr double busy_s = 13;

struct Board {
  UniqueId id;
  std::atomic<int> ready{0};
  struct Survivor {
    std::atomic<bool> over{false};
    Errc code = Errc::ok;
    int peer = -1;
    double took_s = 0;
    char text[800] = {};

    /// Notes how it went.
    void ends(const Result<void>& how) {
      code = how ? Errc::ok : how.error().code;
      peer = how ? -1 : how.error().peer;
      if (!how) std::snprintf(text, sizeof text, "%s", how.error().message().c_str());
      over = true;
    }
  } rank[ranks];
};

/// Runs 5 all-reduces of each of two compositions on each rank, in turns. `trouble(rank, i)` is
/// called before the i-th pair; it returns true if the rank skips the first of the pair.
template <class Trouble>
int play(Board& board, int rank, Trouble&& trouble) {
  auto& mine = board.rank[rank];
  const auto work = [&]() -> Result<void> {
    Config config;
    config.timeout_s = wait_limit_s;
    CCL_TRY(auto comm, Communicator::create(board.id, rank, ranks, config));
    CCL_TRY(auto sums, RingSums::create(comm));
    CCL_TRY(auto ll_sums, RingSums::create(comm, Via::any, {}, By::ll));
    std::vector<float> x(5000, 1.f), y(5000);
    for (int i = 0; i < 5; ++i) {
      ++board.ready;
      const bool skips = trouble(rank, i);
      const auto start = Clock::now();
      const auto step = [&]() -> Result<void> {
        if (!skips) CCL_CHECK(sums(x.data(), y.data(), 5000));
        return ll_sums(x.data(), y.data(), 777);
      };
      auto done = step();
      mine.took_s = seconds(Clock::now() - start);
      CCL_CHECK(std::move(done));
    }
    // A rank that has skipped a call is done early. It keeps running, so that it answers.
    wait_until([&] { return !comm.status().has_value(); }, 20);
    return comm.status();
  };
  mine.ends(work());
  return 0;
}
}  // namespace

TEST_CASE("of four ranks one is stopped: the survivors' errors name it, the operation, the step") {
  Shared<Board> board;
  board->id = create_unique_id().value();
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    pids.push_back(start_process([&, r] {
      return play(*board, r, [&](int rank, int i) {
        if (rank == victim && i == 3) raise(SIGSTOP);
        return false;
      });
    }));
  }
  CHECK(wait_until(
      [&] {
        for (int r = 0; r < ranks; ++r) {
          if (r != victim && !board->rank[r].over) return false;
        }
        return true;
      },
      30));
  for (int r = 0; r < ranks; ++r) {
    if (r == victim) continue;
    const auto& of = board->rank[r];
    INFO("rank " << r << ": " << of.text);
    CHECK(of.code == Errc::timed_out);
    CHECK(of.peer == victim);
    // Three rounds of two; the rank stopped before the fourth.
    CHECK(mentions(of.text, "rank 2 on"));
    CHECK(mentions(of.text,
                   "does not answer (stopped, or cut off) in operation 7 "
                   "(all_reduce/Ring/Simple/any, 5000 float, sum)"));
    CHECK(mentions(of.text, "; rank 3 waits for it at step "));
    CHECK(of.took_s < wait_limit_s + 2 + busy_s);
  }
  kill(pids[victim], SIGKILL);
  kill(pids[victim], SIGCONT);
  CHECK(reap(pids, 20, pids[victim]));
}

TEST_CASE("of four ranks one skips a collective: all errors name it, the operation, the step") {
  Shared<Board> board;
  board->id = create_unique_id().value();
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    pids.push_back(start_process([&, r] {
      return play(*board, r, [&](int rank, int i) { return rank == victim && i == 3; });
    }));
  }
  CHECK(reap(pids, 60));
  for (int r = 0; r < ranks; ++r) {
    const auto& of = board->rank[r];
    INFO("rank " << r << ": " << of.text);
    CHECK(of.code == Errc::timed_out);
    CHECK(of.peer == victim);
    CHECK(mentions(of.text,
                   "rank 2 called all_reduce/Ring/LL/any, 777 float, sum as operation 7 where "
                   "ranks 0-1, 3 called all_reduce/Ring/Simple/any, 5000 float, sum"));
    CHECK(mentions(of.text, "; rank 3 waits for it at step "));
    CHECK(of.took_s < wait_limit_s + 2 + busy_s);
  }
}

TEST_CASE("a rank that is late for the creation of a collective is not waited for any longer") {
  // Two jobs at once. Among 4 ranks each asks all others whether they are stopped, among 20 some.
  Config config;
  config.timeout_s = config.init_timeout_s = 1;
  std::vector<Communicator> comms;
  for (const int ranks_of_job : {4, 20}) {
    auto job = Communicator::create_all(ranks_of_job, config);
    REQUIRE(job);
    comms.insert(comms.end(), job->begin(), job->end());
  }
  const auto results = on_ranks(comms, [](const Communicator& comm) -> Result<void> {
    if (comm.rank() == comm.ranks() - 1) std::this_thread::sleep_for(std::chrono::seconds{2});
    CCL_TRY(const auto sums, RingSums::create(comm));
    float x = 1;
    return sums(&x, &x, 1);
  });
  for (std::size_t i = 0; i < comms.size(); ++i) {
    REQUIRE(!results[i]);
    INFO(results[i].error().message());
    CHECK(results[i].error().code == Errc::timed_out);
    CHECK(results[i].error().peer == comms[i].ranks() - 1);
  }
}

TEST_CASE("of four ranks one leaves a loop early: all errors name it and what it has not called") {
  // with checks the other ranks wait before their lanes do
  const bool checks = GENERATE(false, true);
  Shared<Board> board;
  board->id = create_unique_id().value();
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    pids.push_back(start_process([&, r] {
      const auto work = [&]() -> Result<void> {
        Config config;
        config.timeout_s = wait_limit_s;
        config.check = checks;
        if (checks) config.init_timeout_s = 1;
        ++board->ready;  // a process can be late to start, on a busy machine
        wait_until([&] { return board->ready == ranks; }, 30);
        CCL_TRY(auto comm, Communicator::create(board->id, r, ranks, config));
        CCL_TRY(auto sums, RingSums::create(comm));
        std::vector<double> x(100, 1.0), y(100);
        for (int i = 0; i < (r == victim ? 6 : 7); ++i) CCL_CHECK(sums(x.data(), y.data(), 100));
        wait_until([&] { return !comm.status().has_value(); }, 20);
        return comm.status();
      };
      board->rank[r].ends(work());
      return 0;
    }));
  }
  CHECK(reap(pids, 60));
  for (int r = 0; r < ranks; ++r) {
    const auto& of = board->rank[r];
    INFO("rank " << r << ": " << of.text);
    CHECK(of.code == Errc::timed_out);
    CHECK(of.peer == victim);
    CHECK(mentions(of.text, "rank 2 on"));
    CHECK(mentions(of.text,
                   "has not called operation 7 (all_reduce/Ring/Simple/any, 100 double, sum)"));
    CHECK(mentions(of.text,
                   "its last is operation 6 (all_reduce/Ring/Simple/any, 100 double, sum), "
                   "done for"));
  }
}
