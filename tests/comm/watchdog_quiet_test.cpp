// Pauses of which the watchdog says nothing, and lines that it withdraws or must not write.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/calls/rings.hpp"
#include "support/fault_job.hpp"
#include "support/log_of.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::faults;

namespace {

/// What a rank calls.
struct Shm : CpuRank {
  Communicator comm;
  Board& board;
  RingSums sums;
  std::vector<float> x = std::vector<float>(400'000, 1.f), y = x;

  static Result<std::unique_ptr<Shm>> create(const Communicator& comm, Board& board) {
    CCL_TRY(auto sums, RingSums::create(comm));
    return std::unique_ptr<Shm>{new Shm{{}, comm, board, std::move(sums)}};
  }
  Result<void> sum(Index n = count) { return sums(x.data(), y.data(), n); }
  bool is_victim() const { return comm.rank() == victim; }
};

/// Runs all-reduces for `job_s` seconds. Now and then rank 2 pauses for `pause_s`.
Result<void> run_with_pauses(Shm& calls, double job_s, const std::vector<double>& pauses_s) {
  const double until = now_s() + job_s;
  for (std::size_t n = 0; now_s() < until; ++n) {
    for (int i = 0; i < 200; ++i) CCL_CHECK(calls.sum());
    CCL_CHECK(calls.sum(400'000));
    if (calls.is_victim()) {
      const double pause_s = pauses_s[n % pauses_s.size()];  // the first is whole in any case
      sleep_s(n == 0 ? pause_s : std::min(pause_s, std::max(0., until - now_s())));
      ++calls.board.fired;
    }
    // All ranks end after the same call.
    float goes = now_s() < until ? 1 : 0, all = 0;
    CCL_CHECK(calls.sums(&goes, &all, 1));
    if (all < ranks) break;
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
  start<Shm>(job, 6, [](Shm& calls) -> Result<void> {
    if (calls.is_victim()) {
      fires(calls.board);
      for (int n = 0; n < 20; ++n) sleep_s(0.1);  // 2 s in which it runs
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
          const auto sums = RingSums::create((*comms)[std::size_t(r)]);
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
