#include "observe/health/metrics.hpp"

#include <nlohmann/json.hpp>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;
using namespace ccl::detail::health;

namespace {
CommMetrics example() {
  CommMetrics of;
  of.hash = 0xab;
  of.name = "a \"b\"\\\n";
  of.rank = 1;
  of.ranks = 4;
  of.nodes = 2;
  of.ns_per_tick = 2;
  // 10 calls of 1000 bytes, 10 us each.
  of.cells.push_back({CallCounters::operation_of("all_reduce"), 1, 10, 10000, 10, 50000, 1});
  of.cells.push_back({CallCounters::operation_of("send_recv"), CallCounters::unknown, 3});
  of.waits.by_operation["all_reduce"] = {20, 5};
  of.waits.by_operation["my \"own\"\\\n"] = {2, 1};
  of.connections = {6, 4096, 10, 4};
  return of;
}
bool contains(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}
}  // namespace

TEST_CASE("metrics have the values of the counters") {
  const std::string text = metrics_text({example()}, {3, 2, "node", 7});
  INFO(text);
  const std::string labels =
      R"(comm="0xab",comm_name="a \"b\"\\\n",rank="1",operation="all_reduce")";
  const std::string cell = labels + R"(,size_le="1024")";
  CHECK(contains(text, "ccl_calls_total{" + cell + "} 10"));
  CHECK(contains(text, "ccl_bytes_total{" + cell + "} 10000"));
  CHECK(contains(text, "ccl_call_seconds_total{" + cell + "} 0.0001"));
  CHECK(contains(text, "ccl_call_failures_total{" + cell + "} 1"));
  CHECK(contains(text, "ccl_bus_bytes_total{" + cell + "} 15000"));  // 2 * 3 / 4 of the bytes
  CHECK(contains(text, "ccl_bus_bandwidth_bytes_per_second{" + cell + "} 150000000"));
  CHECK(contains(text, "ccl_samples_running_total{" + labels + "} 20"));
  CHECK(contains(text, "ccl_samples_waiting_total{" + labels + "} 5"));
  CHECK(text.find(R"(operation="my \"own\"\\\n"} 2)") != std::string::npos);
  const std::string rank = R"(comm="0xab",comm_name="a \"b\"\\\n",rank="1")";
  CHECK(contains(text, "ccl_connections{" + rank + "} 6"));
  CHECK(contains(text, "ccl_connection_bytes{" + rank + "} 4096"));
  CHECK(contains(text, "ccl_connections_made_total{" + rank + "} 10"));
  CHECK(contains(text, "ccl_connections_closed_total{" + rank + "} 4"));
  CHECK(contains(text, "ccl_network_retries_total{node=\"node\",pid=\"7\"} 3"));
  CHECK(contains(text, "ccl_network_failovers_total{node=\"node\",pid=\"7\"} 2"));
  CHECK(text.find("nccl_collective_exec_time_microseconds{version=\"v5.1\",") != std::string::npos);
  CHECK(
      text.find("collective=\"all_reduce\",message_size=\"1024\",comm=\"0xab\",rank=\"1\"} 10\n") !=
      std::string::npos);
  CHECK(text.find("size_le=\"unknown\"} 3\n") != std::string::npos);
}

TEST_CASE("every line is one that Prometheus reads") {
  CommMetrics second = example();
  second.rank = 2;
  const std::string text = metrics_text({example(), second}, {});
  const std::regex sample{R"re(^[a-z_]+(\{([a-z_]+="([^"\\\n]|\\.)*",?)*\})? [-+0-9.e]+$)re"};
  const std::regex comment{"^# (HELP|TYPE) [a-z_]+ .+$"};
  std::set<std::string> typed, series;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK((std::regex_match(line, sample) || std::regex_match(line, comment)));
    // The node exporter drops a file that has a series twice.
    if (line[0] != '#') CHECK(series.insert(line.substr(0, line.rfind(' '))).second);
    if (line.starts_with("# TYPE ")) CHECK(typed.insert(line.substr(7)).second);
  }
  CHECK(typed.size() == metric_names().size());
}

TEST_CASE("no series of one process is another's, as files of one folder must be") {
  std::set<std::string> series;
  for (const int pid : {1, 2}) {
    CommMetrics of = example();
    of.rank = pid;
    std::istringstream lines{metrics_text({of}, {0, 0, "node", pid})};
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      if (line[0] != '#') CHECK(series.insert(line.substr(0, line.rfind(' '))).second);
    }
  }
}

TEST_CASE("a name that is no UTF-8 is one that Prometheus reads") {
  CommMetrics of = example();
  of.name = "caf\xe9";
  const std::string text = metrics_text({of}, {});
  CHECK(text.find("comm_name=\"caf?\"") != std::string::npos);
  CHECK(text.find('\xe9') == std::string::npos);
  of.name = "caf\xc3\xa9";
  CHECK(metrics_text({of}, {}).find("comm_name=\"caf\xc3\xa9\"") != std::string::npos);
}

TEST_CASE("the dashboard is JSON that names only metrics that ccl writes") {
  std::ifstream file{CCL_SOURCE_DIR "/tools/grafana/ccl.json"};
  const auto dashboard = nlohmann::json::parse(file, nullptr, false);
  REQUIRE(dashboard.is_object());
  std::set<std::string> known;
  for (const auto name : metric_names()) known.insert(std::string{name});
  std::set<std::string> used;
  std::set<int> ids;
  REQUIRE(dashboard["panels"].size() >= 6);
  for (const auto& panel : dashboard["panels"]) {
    CHECK(ids.insert(panel["id"].get<int>()).second);
    CHECK_FALSE(panel["title"].get<std::string>().empty());
    REQUIRE(panel["targets"].size() > 0);
    for (const auto& target : panel["targets"]) {
      const std::string text = target["expr"];
      const std::regex name{"n?ccl_[a-z_]+"};
      for (std::sregex_iterator at{text.begin(), text.end(), name}, end; at != end; ++at) {
        used.insert(at->str());
        INFO(at->str() << " in " << text);
        CHECK(known.contains(at->str()));
      }
    }
  }
  CHECK(used.size() >= 8);
}
