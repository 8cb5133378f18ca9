#include "observe/health/gather.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "observe/health/monitor.hpp"
#include "observe/health/render.hpp"
#include "support/catch.hpp"
#include "support/growing_limit.hpp"

using namespace ccl;
using namespace ccl::detail;
using namespace ccl::detail::health;

namespace {

using Statuses = std::vector<std::vector<std::byte>>;

RankStatus well(int rank) {
  RankStatus status;
  status.rank = rank;
  status.answered = true;
  return status;
}
/// Communicator of two ranks, of which rank 0 asks.
Asked pair(std::function<Statuses(double)> statuses) {
  Asked one;
  one.view.ranks.resize(2);
  one.view.ranks[0].status = well(0);
  one.view.ranks[1].address = "10.0.0.2";
  one.view.ranks[1].pid = 7;
  one.statuses = std::move(statuses);
  return one;
}
Statuses both() {
  return {pack(RankHealth{}, pack(well(0))), pack(RankHealth{}, pack(well(1)))};
}
bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("ranks that answer are there, and silent ones are unresponsive") {
  const Snapshot seen = gather({pair([](double) { return both(); }), pair([](double) {
                                  Statuses all = both();
                                  all[1].clear();
                                  return all;
                                })},
                               20);
  REQUIRE(seen.communicators.size() == 2);
  CHECK((seen.communicators[0].asked && seen.communicators[0].missing() == 0));
  CHECK((seen.communicators[1].asked && seen.communicators[1].missing() == 1));
  CHECK(seen.timeouts == 1);
  CHECK(seen.communicators[1].diagnosis.behind == 1);
  CHECK(contains(status_json(seen), R"("unresponsive": true)"));
  CHECK_FALSE(contains(status_json(seen), "not_asked"));
}

TEST_CASE("a rank whose process has exited is dead, and behind only if another one waits for it") {
  Asked one = pair([](double) { return Statuses{both()[0], {}}; });
  one.view.ranks[1].departed = true;
  const auto seen_with = [](Asked asked) {
    std::vector<Asked> all;
    all.push_back(std::move(asked));
    return gather(std::move(all), 20);
  };
  const Snapshot calm = seen_with(one);
  CHECK((calm.timeouts == 0 && calm.communicators[0].missing() == 1));
  CHECK(calm.communicators[0].diagnosis.behind == -1);
  CHECK(contains(status_json(calm), R"("considered_dead": true)"));
  Operation runs;
  runs.number = 1;
  runs.state = OpState::running;
  RankStatus& mine = one.view.ranks[0].status;
  mine.operations = {runs};
  mine.waits = {1, 3};
  mine.called = 1;
  const Report report = seen_with(one).communicators[0].diagnosis;
  INFO(report.summary);
  CHECK((report.behind == 1 && report.cause == Cause::no_answer));
  CHECK(contains(report.summary, "has departed"));
}

TEST_CASE("ranks for which no time was left were not asked, and are not called silent") {
  std::atomic<int> asked{0};
  Snapshot seen;
  const auto ask = [&](double whole_s) -> std::string {  // in which 16 threads begin to ask
    asked = 0;
    std::vector<Asked> all;
    for (int n = 0; n < 40; ++n) {
      all.push_back(pair([&](double limit_s) {
        ++asked;
        std::this_thread::sleep_for(std::chrono::duration<double>{limit_s});
        return Statuses{both()[0], {}};  // as with a stopped rank
      }));
    }
    seen = gather(std::move(all), whole_s);
    return asked == 16 ? "" : std::to_string(asked) + " were asked";
  };
  REQUIRE(test::with_growing_limit(0.3, ask) == "");
  CHECK(seen.timeouts == 16);
  int unasked = 0;
  for (const CommView& of : seen.communicators) {
    unasked += of.asked ? 0 : 1;
    CHECK((of.asked || of.diagnosis.behind == -1));
  }
  CHECK(unasked == 24);
  CHECK(contains(status_json(seen), R"("not_asked": true)"));
  CHECK(contains(status_text(seen, true), "NOT ASKED"));
  CHECK(contains(status_text(seen, true), ": not asked\n"));
  CHECK(contains(diagnostics_text(seen), "the ranks were not asked"));
}

TEST_CASE("a communicator that ends while it is asked draws no alarm") {
  Monitor monitor;
  (void)monitor.compare(gather({pair([](double) { return both(); })}, 20));
  const Snapshot seen = gather({pair([](double) { return Statuses(2); })}, 20);
  CHECK_FALSE(seen.communicators[0].asked);
  CHECK(seen.timeouts == 0);
  CHECK(seen.communicators[0].diagnosis.behind == -1);
  CHECK(monitor.compare(seen).empty());
  const Snapshot silent = gather({pair([](double) { return Statuses{both()[0], {}}; })}, 20);
  CHECK(monitor.compare(silent).size() == 1);
  CHECK(monitor.compare(seen).empty());  // nobody has seen it answer again
}

TEST_CASE("names of communicators and hosts add no line to a text") {
  Asked one = pair([](double) {
    Statuses all = both();
    all[1].clear();
    return all;
  });
  one.view.name = "job\nErrors\xff";
  one.view.ranks[1].status.host = "there\r\n[OK]";
  const Snapshot seen = gather({one}, 20);
  CHECK(contains(status_text(seen, true), ", job?Errors?\n"));
  CHECK(contains(status_text(seen, true), "there??[OK]"));
  CHECK(contains(diagnostics_text(seen), "there??[OK]"));
  CHECK_FALSE(contains(diagnostics_text(seen), "there\r"));
}
