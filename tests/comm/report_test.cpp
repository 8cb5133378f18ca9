#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/comm/report.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Ring, Simple, DefaultTransport>;
using LLSums = Collective<AllReduce, Ring, LL, DefaultTransport>;
using P2p = Collective<SendRecv, Pairwise, Simple, DefaultTransport>;

Operation op(Word number, OpState state, const char* what = "all_reduce", Index count = 10) {
  Operation one;
  one.number = number;
  one.call = number - 1;
  one.composition = 0;
  one.count = count;
  one.state = state;
  std::strncpy(one.what, what, sizeof one.what - 1);
  std::strncpy(one.type, "float", sizeof one.type - 1);
  return one;
}
/// Returns ranks that have completed 4 operations and run the fifth. Each waits for the rank before
/// it.
std::vector<RankStatus> ring(int ranks) {
  std::vector<RankStatus> all(ranks);
  for (int r = 0; r < ranks; ++r) {
    all[r].rank = r;
    all[r].answered = true;
    all[r].host = "here";
    all[r].called = 5;
    for (Word n = 1; n <= 4; ++n) all[r].operations.push_back(op(n, OpState::done));
    all[r].operations.push_back(op(5, OpState::running));
    all[r].waits = {(r + ranks - 1) % ranks, 12};
  }
  return all;
}
}  // namespace

TEST_CASE("a rank that does not answer is behind") {
  auto all = ring(4);
  all[2].answered = false;
  const Report report = diagnose(all, 0);
  INFO(report.summary);
  CHECK(report.behind == 2);
  CHECK(report.operation.number == 5);
  CHECK((report.waiting == 3 && report.step == 12));
  CHECK(report.cause == Cause::no_answer);
  CHECK(mentions(report.summary, "rank 2 on here does not answer"));
  CHECK(mentions(report.summary, "operation 5 (all_reduce, 10 float)"));
  CHECK(mentions(report.summary, "rank 3 waits for it at step 12"));
  CHECK(mentions(report.text(), "rank 2: no answer"));
  CHECK(mentions(report.text(), "ranks 0-1, 3: operation 5"));
}

TEST_CASE("of several ranks without an answer, the one at the end of the waiting is named first") {
  auto all = ring(6);
  all[1].answered = all[4].answered = false;
  const Report report = diagnose(all, 0);  // 0 waits for 5, which waits for 4
  CHECK(report.behind == 4);
  CHECK(mentions(report.summary, "ranks 1, 4 on here do not answer"));
  CHECK(diagnose(all, 3).behind == 1);
}

TEST_CASE("a rank that has not called what the others run is behind") {
  auto all = ring(4);
  all[2].operations.pop_back();
  all[2].called = 4;
  all[2].waits = {};
  const Report report = diagnose(all, 1);
  INFO(report.summary);
  CHECK(report.behind == 2);
  CHECK(report.operation.number == 5);
  CHECK((report.waiting == 3 && report.step == 12));
  CHECK(report.cause == Cause::not_called);
  CHECK(
      mentions(report.summary, "rank 2 on here has not called operation 5 (all_reduce, 10 float)"));
  all[2].rendezvous = "finalize";
  const Report ends = diagnose(all, 0);
  CHECK(ends.cause == Cause::other_step);
  CHECK(mentions(ends.summary, "10 float) (it is in finalize; its last is operation 4"));
  CHECK(mentions(ends.text(), "has called 4, is in finalize\n"));
  CHECK(mentions(report.summary, "its last is operation 4 (all_reduce, 10 float), done"));
}

TEST_CASE("a rank that others wait for in a call of all ranks is behind") {
  auto all = ring(4);
  for (RankStatus& of : all) {
    of.operations.back().state = OpState::done;
    of.waits = {};
    if (of.rank != 2) of.rendezvous = "finalize";
  }
  Report report = diagnose(all, 1);
  INFO(report.summary);
  CHECK((report.behind == 2 && report.waiting == 0 && report.cause == Cause::not_called));
  CHECK(
      mentions(report.summary, "rank 2 on here has not called finalize (its last is operation 5"));
  all[2].rendezvous = "split";
  report = diagnose(all, 1);
  CHECK((report.behind == 2 && report.cause == Cause::other_step));
  CHECK(mentions(report.summary, "rank 2 on here is in split where the others are in finalize"));
  all[2].rendezvous = "finalize";
  report = diagnose(all, 1);
  CHECK((report.behind == -1 && report.cause == Cause::none));
  CHECK(report.summary == "no operation runs");
}

TEST_CASE("a receive that waits on purpose hides no collective") {
  auto all = ring(4);
  for (const int r : {0, 1}) {
    Operation receive = op(0, OpState::running, "send_recv");
    receive.composition = 1;
    all[std::size_t(r)].operations.insert(all[std::size_t(r)].operations.begin(), receive);
  }
  all[2].operations.pop_back();
  all[2].called = 4;
  all[2].waits = {};
  for (const int asking : {0, 1, 3}) {
    const Report report = diagnose(all, asking);
    INFO(report.summary);
    CHECK((report.behind == 2 && report.cause == Cause::not_called));
    CHECK(report.operation.number == 5);
  }
}

TEST_CASE("a replay of a graph runs since nobody knows when") {
  auto all = ring(2);  // without times
  CHECK(mentions(diagnose(all, 0).text(), "operation 5 (all_reduce, 10 float), waits for rank"));
  all[0].now_ns = 3'000'000'000;
  all[0].operations.back().started_ns = 1'000'000'000;
  CHECK(mentions(diagnose(all, 0).text(), "10 float) for 2.000 s, waits for rank"));
}

TEST_CASE("statuses that name ranks of another job do no harm") {
  auto all = ring(2);
  all[0].waits = {7, 1};
  CHECK(diagnose(all, 5).operation.number == 5);
}

TEST_CASE("the earliest operation that hangs counts, not that of the asking rank") {
  auto all = ring(4);
  // Rank 0 is one operation ahead; rank 1 has not called operation 5.
  all[0].operations.back().state = OpState::done;
  all[0].operations.push_back(op(6, OpState::running));
  all[0].called = 6;
  all[1].operations.pop_back();
  all[1].called = 4;
  const Report report = diagnose(all, 0);
  CHECK(report.behind == 1);
  CHECK(report.operation.number == 5);
}

TEST_CASE("a GPU whose host is many calls ahead has not begun what its status leaves out") {
  auto all = ring(3);
  for (RankStatus& of : all) of.called = 30;
  auto& late = all[1].operations;
  late.clear();
  for (Word n = 23; n <= 30; ++n) late.push_back(op(n, OpState::launched));
  all[1].waits = {};
  Report report = diagnose(all, 2);
  INFO(report.summary);
  CHECK((report.behind == 1 && report.cause == Cause::queued && report.operation.number == 5));
  CHECK(mentions(report.summary, "has not begun operation 5"));
  all[1].shortage = "132 of 256 blocks";
  CHECK(diagnose(all, 2).cause == Cause::no_place);
  // One that waits in a later operation has done it.
  all[1].shortage.clear();
  late.front().state = OpState::running;
  CHECK(diagnose(all, 2).cause != Cause::queued);
}

TEST_CASE("a rank that called something else is named, with both calls") {
  auto all = ring(4);
  all[1].operations[3] = op(4, OpState::done, "broadcast");
  Report report = diagnose(all, 0);
  INFO(report.summary);
  CHECK(report.behind == 1);
  CHECK(report.cause == Cause::other_operation);
  CHECK(report.operation.number == 4);
  CHECK(mentions(report.summary,
                 "rank 1 called broadcast, 10 float as operation 4 where ranks 0, 2-3 "
                 "called all_reduce, 10 float"));
  all = ring(4);
  all[3].operations[2] = op(3, OpState::done, "all_reduce", 11);
  report = diagnose(all, 0);
  CHECK(report.behind == 3);
  CHECK(mentions(report.summary, "rank 3 called all_reduce, 11 float as operation 3"));
  CHECK(report.cause == Cause::other_count);
}

TEST_CASE("each difference of a call has its cause") {
  const auto cause = [](auto&& change) {
    auto all = ring(4);
    change(all[1].operations[2]);
    const Report report = diagnose(all, 0);
    CHECK(report.behind == 1);
    CHECK(report.operation.number == 3);
    return report.cause;
  };
  using Op = Operation;
  CHECK(cause([](Op& of) { std::strcpy(of.type, "double"); }) == Cause::other_type);
  CHECK(cause([](Op& of) { of.count = 11; }) == Cause::other_count);
  CHECK(cause([](Op& of) { std::strcpy(of.redop, "max"); }) == Cause::other_reduction);
  CHECK(cause([](Op& of) { of.root = 1; }) == Cause::other_root);
  CHECK(cause([](Op& of) { of.composition = 1; }) == Cause::other_operation);
  CHECK(cause([](Op& of) { of.call = 7; }) == Cause::other_operation);
  // Of several, the one that says most.
  CHECK(cause([](Op& of) { std::strcpy(of.type, "double"), of.count = 5; }) == Cause::other_type);
}

TEST_CASE("names of causes, and those that time does not remove") {
  CHECK(name(Cause::none) == "none");
  CHECK(name(Cause::other_count) == "other_count");
  CHECK(name(Cause::stuck_proxy) == "stuck_proxy");
  CHECK(name(Cause::working) == "working");
  CHECK(certain(Cause::other_root));
  CHECK_FALSE(certain(Cause::not_called));
  CHECK_FALSE(certain(Cause::none));
}

TEST_CASE("a rank whose proxy does not run is behind") {
  auto all = ring(4);
  all[1].proxy_stuck_s = 4;
  const Report report = diagnose(all, 3);
  INFO(report.summary);
  CHECK(report.behind == 1);
  CHECK(report.waiting == 2);
  CHECK(report.cause == Cause::stuck_proxy);
  CHECK(mentions(report.summary, "has not run for 4.0 s"));
  all[2].called = 4;
  all[2].operations.pop_back();
  CHECK(diagnose(all, 3).cause == Cause::not_called);
}

TEST_CASE("what a rank has sent over a network and its peer has not received is a silent link") {
  auto all = ring(4);
  // Rank 2 waits for step 12 of rank 1, which has sent 13 steps.
  all[2].steps = {{1, 0, false, 12, 12, 0, true}};
  all[1].steps = {{2, 0, true, 13, 12, 0, true}};
  Report report = diagnose(all, 0);
  INFO(report.summary);
  CHECK(report.cause == Cause::silent_link);
  CHECK((report.behind == 1 && report.waiting == 2));
  CHECK(mentions(report.summary,
                 "the network does not deliver what rank 1 on here has sent to rank 2 on here: "
                 "step 12 of channel 0"));
  SECTION("also if the sender has done its part, and its status tells of other operations") {
    all[1].operations.back().state = OpState::done;
    CHECK(diagnose(all, 0).cause == Cause::silent_link);
  }
  SECTION("also if the sender has destroyed the composition after its part") {
    all[1].operations.back().state = OpState::done;
    all[1].steps.clear();
    report = diagnose(all, 0);
    CHECK(report.cause == Cause::silent_link);
    CHECK((report.behind == 1 && report.waiting == 2));
    CHECK(mentions(report.summary, "its part of which is done"));
    all[1].operations.back().state = OpState::running;
    CHECK(diagnose(all, 0).cause != Cause::silent_link);
  }
  SECTION("the credit counts, too") {
    all[2].waits = {3, 12};
    all[2].steps = {{3, 1, true, 12, 4, 0, true}};
    all[3].steps = {{2, 1, false, 12, 5, 0, true}};
    report = diagnose(all, 0);
    CHECK(report.cause == Cause::silent_link);
    CHECK((report.behind == 3 && report.waiting == 2));
  }
  SECTION(
      "not if all has arrived, in shared memory, on another channel or in another composition") {
    const auto sound = [&](auto&& change) {
      auto other = all;
      change(other);
      return diagnose(other, 0).cause != Cause::silent_link;
    };
    CHECK(sound([](auto& of) { of[1].steps[0].filled = 12; }));
    CHECK(sound([](auto& of) { of[2].steps[0].proxied = false; }));
    CHECK(sound([](auto& of) { of[1].steps[0].channel = 1; }));
    CHECK(sound([](auto& of) { of[1].steps[0].composition = 1; }));
    CHECK(sound([](auto& of) { of[1].steps[0].peer = 3; }));
    CHECK(sound([](auto& of) { of[2].waits = {3, 12}; }));
  }
}

TEST_CASE("ranks that wait for each other in two communicators are a circle") {
  auto all = ring(4);
  for (int r = 0; r < 4; ++r) all[r].pid = 100 + r;
  all[2].operations.pop_back();
  all[2].called = 4;
  all[2].waits = {};
  all[2].elsewhere = {"operation 1 (all_reduce) of communicator pair", "here", 100};
  const Report report = diagnose(all, 1);
  INFO(report.summary);
  CHECK(report.cause == Cause::communicators);
  CHECK(report.behind == 2);
  CHECK(mentions(report.summary, "it is in operation 1 (all_reduce) of communicator pair"));
  // Another process, or the same number on another host, is no rank of this communicator.
  all[2].elsewhere.peer_pid = 99;
  CHECK(diagnose(all, 1).cause == Cause::not_called);
  all[2].elsewhere.peer_pid = 100;
  all[2].elsewhere.peer_host = "there";
  CHECK(diagnose(all, 1).cause == Cause::not_called);
}

TEST_CASE("messages between some ranks are no difference") {
  auto all = ring(3);
  Operation message = op(0, OpState::done, "send_recv");
  all[1].operations.insert(all[1].operations.begin() + 1, message);
  all[2].operations.pop_back();
  all[2].called = 4;
  CHECK(diagnose(all, 0).behind == 2);
}

TEST_CASE("within one operation, the rank that waits for nobody is behind") {
  auto all = ring(4);
  all[2].waits = {};
  const Report report = diagnose(all, 0);
  CHECK(report.behind == 2);
  CHECK(report.waiting == 3);
  CHECK(mentions(report.summary, "rank 2 on here waits for nobody"));
  CHECK(report.cause == Cause::working);
  all[2].waits = {1, 7};
  CHECK(mentions(diagnose(all, 0).summary, "wait for each other in a circle"));
  CHECK(diagnose(all, 0).behind == 2);
  CHECK(diagnose(all, 0).cause == Cause::circle);
}

TEST_CASE("a rank whose stream is busy with something else holds the others up") {
  auto all = ring(3);
  all[1].operations.back().state = OpState::queued;
  all[1].operations.push_back(op(0, OpState::running, "send_recv"));
  all[1].waits = {0, 3};
  const Report report = diagnose(all, 2);
  INFO(report.summary);
  CHECK(report.behind == 1);
  CHECK(mentions(report.summary, "has not begun operation 5"));
  CHECK(mentions(report.summary, "of send_recv"));
  CHECK(report.cause == Cause::queued);
}

TEST_CASE("of GPUs that have not said that they wait, one is behind if others wait for it") {
  // A broadcast from 0, whose GPU may be through; that of rank 2 has other work to do first.
  auto all = ring(4);
  for (const int r : {0, 2}) {
    all[r].operations.back().state = OpState::launched;
    all[r].waits = {};
  }
  all[1].waits = {2, 7};
  for (int asking = 0; asking < 4; ++asking) {
    const Report report = diagnose(all, asking);
    INFO(report.summary);
    CHECK(report.behind == 2);
    CHECK(mentions(report.summary, "rank 2 on here has not begun operation 5"));
    CHECK(mentions(report.summary, "(launched behind other work); rank "));
    CHECK(report.cause == Cause::queued);
  }
  all[2].shortage = "132 of 256 blocks";
  CHECK(diagnose(all, 0).cause == Cause::no_place);
  CHECK(mentions(diagnose(all, 0).summary, "132 of 256 blocks"));
  all[2].operations.back().state = OpState::running;
  all[1].waits = {2, 7};
  all[2].waits = {};
  CHECK(diagnose(all, 3).behind == 2);
}

TEST_CASE("where nothing runs, nobody is behind") {
  auto all = ring(2);
  for (auto& of : all) of.operations.back().state = OpState::done;
  const Report report = diagnose(all, 0);
  CHECK(report.behind == -1);
  CHECK(report.cause == Cause::none);
  CHECK(report.summary == "no operation runs");
}

TEST_CASE("an account comes back from its bytes, and other bytes are refused") {
  RankStatus rank_status = ring(4)[3];
  rank_status.pid = 7;
  rank_status.now_ns = 99;
  rank_status.rendezvous = "split";
  rank_status.shortage = "132 of 256 blocks";
  rank_status.elsewhere = {"operation 3 of communicator b", "there", 17};
  rank_status.network_bytes = 1000;
  rank_status.proxy_stuck_s = 2.5;
  rank_status.asks_about = 5;
  for (int i = 0; i < 100; ++i) {
    rank_status.steps.push_back({i % 10, i / 10, i % 2 == 0, 5, 4, 3, i % 2 == 0});
  }
  const auto bytes = detail::pack(rank_status);
  RankStatus back;
  REQUIRE(detail::unpack(bytes, back));
  CHECK((back.rank == 3 && back.answered && back.host == "here" && back.pid == 7));
  CHECK(back.rendezvous == "split");
  CHECK(back.shortage == "132 of 256 blocks");
  CHECK(back.elsewhere.text == "operation 3 of communicator b");
  CHECK((back.elsewhere.peer_host == "there" && back.elsewhere.peer_pid == 17));
  CHECK((back.network_bytes == 1000 && back.proxy_stuck_s == 2.5 && back.asks_about == 5));
  CHECK(detail::asks_about(bytes) == 5);
  CHECK(detail::asks_about(std::span{bytes}.first(100)) == 0);
  CHECK(mentions(diagnose({back}, 0).text(), "132 of 256 blocks"));
  CHECK((back.now_ns == 99 && back.called == 5 && back.waits.peer == 2 && back.waits.step == 12));
  REQUIRE(back.operations.size() == 5);
  CHECK(back.operations[4].state == OpState::running);
  REQUIRE(back.steps.size() == 64);
  for (int i = 0; i < 10; ++i) CHECK(back.steps[i].peer == 2);  // first those that matter
  CHECK((back.steps[0].composition == 3 && back.steps[0].proxied == back.steps[0].sends));
  CHECK_FALSE(detail::unpack(std::span{bytes}.first(bytes.size() - 1), back));
  CHECK_FALSE(detail::unpack({}, back));
  auto wrong = bytes;
  wrong[0] = std::byte{0};
  CHECK_FALSE(detail::unpack(wrong, back));
  CHECK(detail::asks_about(wrong) == 0);
  wrong = bytes;
  wrong[wrong.size() - sizeof(WireSteps) + offsetof(WireSteps, proxied)] = std::byte{2};
  CHECK_FALSE(detail::unpack(wrong, back));
}

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
        CCL_TRY(auto sums, LLSums::create((*comms)[r]));
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
    std::vector<Result<Sums>> sums(2, fail(Errc::internal, "not made"));
    Result<void> result;
    const auto make = [&](int r) { sums[r] = Sums::create((*comms)[r]); };
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
        CCL_TRY(const auto sums, Sums::create(comm));
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
