#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/flight_record.hpp>
#include <ccl/proto/ll.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/log_of.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using Sums = Collective<AllReduce, Tree, LL>;

/// A folder for flight records, which it removes.
struct Folder {
  Folder() { std::filesystem::create_directory(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  /// The JSON records, by rank; a file that is being replaced is not among them.
  std::vector<FlightRecord> records() const {
    std::vector<FlightRecord> all;
    for (const auto& file : std::filesystem::directory_iterator{path}) {
      if (file.path().extension() != ".json") continue;
      std::ifstream in{file.path()};
      auto record = read_flight_record(std::string{std::istreambuf_iterator<char>{in}, {}});
      if (record) all.push_back(*std::move(record));
    }
    std::ranges::sort(all, {}, [](const FlightRecord& of) { return of.status.rank; });
    return all;
  }
  const std::string path = fmt::format("/tmp/ccl-dump-{}", ::getpid());
};

Report report_of(const std::vector<FlightRecord>& records) {
  std::vector<RankStatus> ranks;
  for (const FlightRecord& of : records) ranks.push_back(of.status);
  return diagnose(std::move(ranks), -1);
}

}  // namespace

TEST_CASE("on demand, a rank writes what it remembers") {
  const Folder folder;
  auto comms = Communicator::create_all(2);
  REQUIRE(comms);
  std::vector<std::thread> ranks;
  std::vector<Result<void>> done(2);
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      done[r] = [&]() -> Result<void> {
        CCL_TRY(auto sums, Sums::create((*comms)[r]));
        float x = 1, y = 0;
        for (int call = 0; call < 20; ++call) CCL_CHECK(sums(&x, &y, 1));
        return (*comms)[r].dump(folder.path);
      }();
    });
  }
  for (auto& rank : ranks) rank.join();
  for (const auto& one : done) CHECK(one);
  const auto records = folder.records();
  REQUIRE(records.size() == 2);
  CHECK(records[0].communicator == records[1].communicator);
  CHECK(records[0].communicator.size() == 16);
  CHECK((records[0].ranks == 2 && records[0].failure.empty()));
  CHECK(records[1].status.rank == 1);
  CHECK(records[1].status.pid == ::getpid());
  REQUIRE(records[1].status.operations.size() == 20);  // more than a report has
  CHECK(records[1].status.operations[19].number == 20);
  CHECK(records[1].status.operations[19].state == OpState::done);
  const auto nowhere = (*comms)[0].dump("/tmp/ccl-no-such-folder");
  REQUIRE_FALSE(nowhere);
  CHECK((nowhere.error().code == Errc::system && nowhere.error().rank == 0));
}

TEST_CASE("when a rank is late, every rank writes what it did, the late one too") {
  const Folder folder;
  const Environment dump{"CCL_DUMP_DIR", folder.path};
  Config config;
  config.timeout_s = 1;
  config.name = "late";
  auto comms = Communicator::create_all(3, config);
  REQUIRE(comms);
  std::atomic<bool> leave{false};
  std::vector<std::thread> ranks;
  std::vector<Result<void>> done(3);
  std::vector<char> was_there(3);
  for (int r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r] {
      done[r] = [&]() -> Result<void> {
        CCL_TRY(auto sums, Sums::create((*comms)[r]));
        float x = 1, y = 0;
        CCL_CHECK(sums(&x, &y, 1));
        if (r == 1) {  // in no call
          while (!leave) sleep_s(0.001);
          return {};
        }
        auto late = sums(&x, &y, 1);
        for (const auto& of : folder.records())
          if (of.status.rank == r) was_there[r] = 1;
        return late;
      }();
    });
  }
  const bool all = wait_until([&] { return folder.records().size() == 3; }, 60);
  leave = true;
  for (auto& rank : ranks) rank.join();
  CHECK(all);
  CHECK_FALSE(done[0]);
  CHECK((was_there[0] && was_there[2]));  // before the call returns its error
  const auto records = folder.records();
  REQUIRE(records.size() == 3);
  for (const auto& of : records) {
    CHECK(mentions(of.failure, "rank 1"));
    CHECK(of.name == "late");
  }
  const Report report = report_of(records);
  INFO(report.text());
  CHECK(report.behind == 1);
  CHECK(mentions(report.summary, "has not called operation 2"));
}

TEST_CASE("communicators and their splits write files of their own") {
  const Folder folder;
  auto comms = Communicator::create_all(2);
  REQUIRE(comms);
  std::vector<std::thread> ranks;
  std::vector<Result<void>> done(2);
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      done[r] = [&]() -> Result<void> {
        CCL_TRY(auto twin, (*comms)[r].split(0, r));
        CCL_CHECK((*comms)[r].dump(folder.path));
        CCL_CHECK(twin->dump(folder.path));
        return twin->finalize();
      }();
    });
  }
  for (auto& rank : ranks) rank.join();
  for (const auto& one : done) CHECK(one);
  const auto records = folder.records();
  REQUIRE(records.size() == 4);
  CHECK(records[0].communicator != records[1].communicator);
}

TEST_CASE("on a signal, a process writes its record") {
  const Folder folder;
  const pid_t pid = start_process([&]() -> int {
    ::setenv("CCL_REPORT_SIGNAL", std::to_string(SIGUSR1).c_str(), 1);
    ::setenv("CCL_DUMP_DIR", folder.path.c_str(), 1);
    auto comms = Communicator::create_all(2);
    if (!comms) return 1;
    ::raise(SIGUSR1);
    return wait_until([&] { return folder.records().size() == 2; }, 30) ? 0 : 2;
  });
  CHECK(reap({pid}, 60));
  CHECK(folder.records().size() == 2);
}

TEST_CASE("a folder that is not there is a warning of the first communicator, and fails no job") {
  const Environment dump{"CCL_DUMP_DIR", "/tmp/ccl-no-such-folder"};
  const std::string warning =
      "WARN INIT a failure will leave no flight record in CCL_DUMP_DIR=/tmp/ccl-no-such-folder "
      "(No such file or directory); make it";
  const std::string before = log_of([] { REQUIRE(Communicator::create_all(2)); });
  CHECK(before.find(warning) != before.npos);
  CHECK(before.find(warning) == before.rfind(warning));
  const std::string log = log_of([] {
    auto comms = Communicator::create_all(2);
    REQUIRE(comms);
    (*comms)[0].abort("for a test");
    const auto status = (*comms)[0].status();
    REQUIRE_FALSE(status);
    CHECK(status.error().code == Errc::aborted);
  });
  CHECK(mentions(log, "no flight record (CCL_DUMP_DIR=/tmp/ccl-no-such-folder)"));
  CHECK_FALSE(mentions(log, warning.c_str()));
}

TEST_CASE("the record of a failure stays, and the communicator's end writes none") {
  const Folder folder;
  const Environment dump{"CCL_DUMP_DIR", folder.path};
  {
    auto comms = Communicator::create_all(2);
    REQUIRE(comms);
    std::vector<std::thread> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.emplace_back([&, r] { (void)(*comms)[r].finalize(); });
    }
    for (auto& rank : ranks) rank.join();
  }
  CHECK(folder.records().empty());
  auto comms = Communicator::create_all(2);
  REQUIRE(comms);
  (*comms)[1].abort("first");
  REQUIRE_FALSE((*comms)[1].status());
  (*comms)[1].abort("second");
  CHECK(wait_until([&] { return folder.records().size() == 2; }, 30));
  for (const auto& of : folder.records()) CHECK(mentions(of.failure, "first"));
}

TEST_CASE("a name that is no UTF-8 makes no record that cannot be read") {
  const Folder folder;
  Config config;
  config.name = "caf\xe9";
  auto comms = Communicator::create_all(2, config);
  REQUIRE(comms);
  REQUIRE((*comms)[0].dump(folder.path));
  REQUIRE(folder.records().size() == 1);
  CHECK(folder.records()[0].name == "caf?");
  Communicator gone = std::move((*comms)[1]);
  const auto moved = (*comms)[1].dump(folder.path);
  REQUIRE_FALSE(moved);
  CHECK(moved.error().code == Errc::invalid_usage);
}
