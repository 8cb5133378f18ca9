#include "observe/health/monitor.hpp"

#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail::health;

namespace {
/// A communicator of `ranks` processes that answer.
Snapshot job(int ranks) {
  Snapshot snapshot;
  CommView& of = snapshot.communicators.emplace_back();
  of.ranks.resize(std::size_t(ranks));
  for (int r = 0; r < ranks; ++r) {
    RankView& rank = of.ranks[std::size_t(r)];
    rank.address = "10.0.0.1";
    rank.pid = 100 + r;
    rank.status.rank = r;
    rank.status.answered = true;
  }
  return snapshot;
}
std::vector<std::string> names(const std::vector<Event>& events) {
  std::vector<std::string> all;
  for (const Event& event : events) all.emplace_back(event.name);
  return all;
}
using Names = std::vector<std::string>;
}  // namespace

TEST_CASE("a monitor reports what has changed") {
  Monitor monitor;
  Snapshot now = job(2);
  CHECK(names(monitor.compare(now)) == Names{"PEER_NEW", "PEER_NEW"});
  CHECK(monitor.compare(now).empty());
  RankView& second = now.communicators[0].ranks[1];
  second.status.answered = false;
  const auto silent = monitor.compare(now);
  REQUIRE(names(silent) == Names{"PEER_UNRESPONSIVE"});
  CHECK(silent[0].group == trace);
  CHECK(silent[0].pid == 101);
  second.status.answered = true;
  CHECK(names(monitor.compare(now)) == Names{"PEER_RECOVERED"});
  second.status.answered = false;
  second.dead = true;
  const auto dead = monitor.compare(now);
  REQUIRE(names(dead) == Names{"PEER_DEAD"});
  CHECK(dead[0].group == lifecycle);
}

TEST_CASE("an event as text and as JSON") {
  Event event{lifecycle, "PEER_DEAD", "10.0.0.7", 42, {1}, "its connections have ended", 0};
  const std::string text = event_line(event, Format::text), json = event_line(event, Format::json);
  CHECK(
      text.ends_with("] PEER_DEAD: Process 42 on node 10.0.0.7 managing GPU 1 its connections "
                     "have ended"));
  CHECK(json.find(R"("group":"LIFECYCLE","event":"PEER_DEAD","peer":{"host":"10.0.0.7","pid":42,)"
                  R"("cuda_devs":[1],"nvml_devs":[1]})") != std::string::npos);
  CHECK(json.find('\n') == std::string::npos);
}

TEST_CASE("a rank that another has lost is dead, and one that is only silent is not") {
  Snapshot now = job(3);
  CommView& of = now.communicators[0];
  of.ranks[1].status.answered = of.ranks[2].status.answered = false;
  of.ranks[0].health.lost_peer = 2;
  conclude(of);
  CHECK_FALSE(of.ranks[1].dead);
  CHECK(of.ranks[2].dead);
  CHECK(of.missing() == 2);
  CHECK(of.diagnosis.behind == 1);
}
