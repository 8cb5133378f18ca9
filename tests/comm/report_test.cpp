// Reports of live communicators: on demand, on a signal, and in errors.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/comm/report.hpp>
#include <ccl/proto/simple.hpp>

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "support/calls/rings.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using P2p = Collective<SendRecv, Pairwise, Simple, DefaultTransport>;
}  // namespace

TEST_CASE("on demand, a rank learns what all others do, while they do it") {
  Config config;
  config.timeout_s = 60;
  auto comms = Communicator::create_all(3, config);
  REQUIRE(comms.has_value());
  std::atomic<bool> go{false};
  std::vector<Result<void>> results(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      results[r] = [&]() -> Result<void> {
        CCL_TRY(auto sums, RingSums::create((*comms)[r], Via::any, {}, By::ll));
        std::vector<float> x(1000, 1.f), y(1000);
        CCL_CHECK(sums(x.data(), y.data(), 1000));
        while (r == 1 && !go) sleep_s(0.001);
        return sums(x.data(), y.data(), 1000);
      }();
    });
  }
  Report report;
  // Ranks 0 and 2 call operation 2; rank 1 does not.
  CHECK(wait_until(
      [&] {
        report = (*comms)[0].report();
        return report.behind == 1 && report.waiting == 2;
      },
      30));
  INFO(report.text());
  CHECK(report.operation.number == 2);
  CHECK(std::string_view{report.operation.what} == "all_reduce/Ring/LL/any");
  CHECK(std::string_view{report.operation.type} == "float");
  CHECK(report.operation.count == 1000);
  CHECK(mentions(report.summary, "has not called operation 2"));
  REQUIRE(report.ranks.size() == 3);
  const RankStatus& waiting = report.ranks[2];
  CHECK(waiting.called == 2);
  CHECK(waiting.waits.peer == 1);
  CHECK(waiting.waits.step == report.step);
  bool seen = false;
  for (const WireSteps& s : waiting.steps) {
    if (s.sends || s.peer != 1) continue;
    seen = true;
    CHECK(s.drained == report.step);
  }
  CHECK(seen);
  go = true;
  for (auto& t : threads) t.join();
  for (const auto& result : results) CHECK(result.has_value());
  CHECK(wait_until(  // the data of a report can be 0.2 s old
      [&] {
        report = (*comms)[2].report();
        return report.behind == -1;
      },
      30));
  CHECK(report.ranks[1].operations.back().state == OpState::done);
}

TEST_CASE("a signal of crashes is not taken for reports: the process would crash for ever") {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGKILL}) {
    const Environment env{"CCL_REPORT_SIGNAL", std::to_string(signal)};
    const auto comms = Communicator::create_all(2);
    INFO(signal);
    REQUIRE_FALSE(comms);
    CHECK(comms.error().code == Errc::bad_setting);
    CHECK(mentions(comms.error().what, "CCL_REPORT_SIGNAL"));
  }
}

TEST_CASE("on a signal, a process logs what all ranks do") {
  const std::string file = fmt::format("/tmp/ccl-report-{}.log", getpid());
  const pid_t pid = start_process([&]() -> int {
    setenv("CCL_REPORT_SIGNAL", std::to_string(SIGUSR1).c_str(), 1);
    setenv("CCL_DEBUG_FILE", file.c_str(), 1);
    log_reload();
    Config config;
    config.timeout_s = 60;
    auto comms = Communicator::create_all(2, config);
    if (!comms) return 1;
    std::vector<Result<RingSums>> sums(2, fail(Errc::internal, "not made"));
    Result<void> result;
    const auto make = [&](int r) { sums[r] = RingSums::create((*comms)[r]); };
    std::thread first{[&] {
      make(0);
      float x = 1, y = 0;
      result = (*sums[0])(&x, &y, 1);
    }};
    make(1);
    const auto said = [&] {
      std::ifstream in{file};
      const std::string text{std::istreambuf_iterator<char>{in}, {}};
      return mentions(text, "rank 0 WARN COLL rank 1 on") &&
             mentions(text, "rank 1 WARN COLL rank 1 on") &&
             mentions(text,
                      "has not called operation 1 (all_reduce/Ring/Simple/any, 1 float, sum)");
    };
    const bool good = wait_until(
        [&] {
          raise(SIGUSR1);
          sleep_s(0.25);
          return said();
        },
        30);
    float x = 1, y = 0;
    const auto second = (*sums[1])(&x, &y, 1);
    first.join();
    return good && second && result && y == 2 ? 0 : 2;
  });
  CHECK(reap({pid}, 60));
  unlink(file.c_str());
}

TEST_CASE("on a signal, a process says nothing of a communicator that has been finalized") {
  const std::string file = fmt::format("/tmp/ccl-report-{}.log", getpid());
  const pid_t pid = start_process([&]() -> int {
    setenv("CCL_REPORT_SIGNAL", std::to_string(SIGUSR1).c_str(), 1);
    setenv("CCL_DEBUG_FILE", file.c_str(), 1);
    log_reload();
    const auto ended = Communicator::create_all(2);
    if (!ended) return 1;
    std::thread other{[&] { (void)(*ended)[1].finalize(); }};
    const bool well = (*ended)[0].finalize().has_value();
    other.join();
    const auto live = Communicator::create_all(2);
    if (!live || !well) return 2;
    std::string text;
    const bool said = wait_until(
        [&] {
          raise(SIGUSR1);
          sleep_s(0.25);
          std::ifstream in{file};
          text.assign(std::istreambuf_iterator<char>{in}, {});
          return mentions(text,
                          "no operation runs");  // this line follows those about the other ranks
        },
        30);
    return !said ? 3 : mentions(text, "not answer") ? 4 : 0;
  });
  CHECK(reap({pid}, 60));
  unlink(file.c_str());
}

TEST_CASE("a receive that nobody answers names its peer") {
  Config config;
  config.timeout_s = 0.3;
  auto comms = Communicator::create_all(3, config);
  REQUIRE(comms.has_value());
  std::vector<Result<void>> results(3);
  std::vector<Result<P2p>> made(3, fail(Errc::internal, "not made"));
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      made[r] = P2p::create((*comms)[r]);
      if (!made[r] || r == 1) return;
      int x = 0;
      results[r] = r == 0 ? made[r]->recv(&x, 1, 1) : Result<void>{};
    });
  }
  for (auto& t : threads) t.join();
  REQUIRE(!results[0].has_value());
  INFO(results[0].error().message());
  CHECK(results[0].error().code == Errc::timed_out);
  CHECK(results[0].error().peer == 1);
  CHECK(mentions(results[0].error().what, "rank 1 on"));
  CHECK(mentions(results[0].error().what, "call 1 of send_recv/Pairwise/Simple/any"));
}

TEST_CASE("errors of a call and the report give it the same number") {
  const bool aborts = GENERATE(true, false);  // else rank 0 ends while the other waits
  Config config;
  config.timeout_s = aborts ? 60 : 1;
  auto comms = Communicator::create_all(2, config);
  REQUIRE(comms.has_value());
  std::vector<Result<void>> results(2);
  std::atomic<bool> waits{false};
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const auto work = [&]() -> Result<void> {
        const Communicator& comm = (*comms)[size_t(r)];
        CCL_TRY(const auto sums, RingSums::create(comm));
        float x = 1, y = 0;
        CCL_CHECK(sums(&x, &y, 1));
        CCL_CHECK(comm.barrier());
        if (r == 1) {
          waits = true;
          return sums(&x, &y, 1);
        }
        if (!aborts) return comm.finalize();
        while (!waits || comm.report().ranks[1].running() == nullptr) {
        }
        comm.abort("enough");
        return comm.status();
      };
      results[size_t(r)] = work();
    });
  }
  for (auto& t : threads) t.join();
  REQUIRE(!results[1].has_value());
  const std::string& said = results[1].error().what;
  INFO(said);
  if (aborts) {
    CHECK(mentions(said, "enough"));
    CHECK(mentions(said, "[while in all_reduce/Ring/Simple/any, operation 3]"));
  } else {
    CHECK(results[1].error().peer == 0);
    CHECK(mentions(said, "has not called operation 3 (all_reduce/Ring/Simple/any, 1 float, sum)"));
    CHECK(mentions(said, "in finalize"));  // either of the two can be the first to report it
    REQUIRE(!results[0].has_value());
    CHECK(mentions(results[0].error().what, "in finalize"));
  }
}
