#include <ccl/ccl.hpp>
#include <ccl/detail/choose/tuning.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

#include "support/catch.hpp"
#include <unistd.h>

using namespace ccl;

namespace {
const detail::TuningCase here{"all_reduce", 2, 1, "shm", 0, 0};

detail::TuningTable table_of(Index bytes, const char* first, double us, const char* second,
                             double more) {
  detail::TuningTable table;
  table.machine = "of a test";
  table.rows.push_back({here, bytes, {{first, us}, {second, more}}});
  return table;
}
class File {
 public:
  explicit File(const std::string& text)
      : path_{"tuning_test." + std::to_string(::getpid()) + "." + std::to_string(count_++)} {
    std::ofstream{path_} << text;
  }
  ~File() { std::remove(path_.c_str()); }
  File(const File&) = delete;
  const std::string& path() const { return path_; }

 private:
  static inline int count_ = 0;
  std::string path_;
};

using Sums = Collective<AllReduce, AutoOf<Candidate<Doubling, Simple>, Candidate<Ring, Simple>>,
                        Auto, LoopbackTransport>;

/// Returns the choice of two ranks for a size, with a table for each. `limit` bounds the first
/// rank's channels.
Result<Choice> choice_with(const std::string& first, const std::string& second, Index bytes,
                           std::optional<int> limit = {}) {
  Config config;
  config.device = Config::cpu;
  std::vector<Config> configs(2, config);
  configs[0].tune_file = first;
  configs[1].tune_file = second;
  configs[0].max_channels = limit;
  CCL_TRY(const UniqueId id, create_unique_id());
  Result<Choice> choices[2] = {Choice{}, Choice{}};
  std::optional<Communicator> kept[2];  // the end of one aborts the other
  std::thread threads[2];
  for (int r = 0; r < 2; ++r) {
    threads[r] = std::thread{[&, r] {
      choices[r] = [&]() -> Result<Choice> {
        CCL_TRY(auto comm, Communicator::create(id, r, 2, configs[std::size_t(r)]));
        kept[r] = comm;
        CCL_TRY(const auto call, Sums::create(comm));
        std::vector<float> data(std::size_t(bytes / 4), 1);
        CCL_CHECK(call(data.data(), data.data(), bytes / 4));
        if (data[0] != 2) return fail(Errc::internal, "wrong sum");
        const Choice choice = call.plan(bytes);
        CCL_CHECK(comm.finalize());
        return choice;
      }();
    }};
  }
  for (auto& thread : threads) thread.join();
  CHECK(choices[0].has_value() == choices[1].has_value());
  if (choices[0] && choices[1]) CHECK(choices[0]->text() == choices[1]->text());
  return choices[0];
}
}  // namespace

TEST_CASE("a table is read as it was written") {
  const detail::TuningTable table = table_of(1024, "Ring/Simple", 5.25, "Doubling/Simple", 3);
  const auto read = detail::TuningTable::parse(table.json(), "text");
  REQUIRE(read);
  CHECK(read->machine == "of a test");
  REQUIRE(read->rows.size() == 1);
  CHECK(read->rows[0].where == here);
  CHECK(read->rows[0].bytes == 1024);
  auto us = table.rows[0].us;
  std::sort(us.begin(), us.end());
  CHECK(read->rows[0].us == us);
  CHECK(table.json().find("\"best\": \"Doubling/Simple\"") != std::string::npos);
}

TEST_CASE("what is no table is refused, and it is said why") {
  const auto why = [](const char* text) {
    const auto read = detail::TuningTable::parse(text, "f.json");
    REQUIRE_FALSE(read);
    CHECK(read.error().code == Errc::bad_setting);
    return read.error().what;
  };
  const auto row = [&](const std::string& row) {
    return why((R"({"format": "ccl tuning table 1", "rows": [)" + row + "]}").c_str());
  };
  CHECK(why("[1]").find("f.json is no table of measurements (it is no JSON object)") == 0);
  CHECK(why("{\"format\"").find("no JSON object") != std::string::npos);
  CHECK(why("{}").find("\"format\" is not") != std::string::npos);
  CHECK(why(R"({"format": "ccl tuning table 1"})").find("array \"rows\"") != std::string::npos);
  CHECK(row("3").find("row 0: it is no object") != std::string::npos);
  CHECK(row("{}").find("\"op\" is missing") != std::string::npos);
  const std::string where = R"("op": "all_reduce", "ranks": 2, "hosts": 1, "path": "shm",
    "compute_capability": 0, "max_ctas": 0, )";
  CHECK(row("{" + where + R"("bytes": -1})").find("\"bytes\"") != std::string::npos);
  // Values must not be truncated to fewer bits.
  CHECK(row("{" + where + R"("bytes": 9223372036854775808})").find("\"bytes\"") !=
        std::string::npos);
  CHECK(row(R"({"op": "all_reduce", "ranks": 4294967298})").find("\"ranks\"") != std::string::npos);
  CHECK(row("{" + where + R"("bytes": 8, "us": {}})").find("no composition") != std::string::npos);
  CHECK(row("{" + where + R"("bytes": 8, "us": {"Ring/LL": 0}})").find("Ring/LL is no number") !=
        std::string::npos);
  CHECK_FALSE(detail::TuningTable::read("/no/such/file"));
  const auto endless = detail::TuningTable::read("/dev/zero");
  REQUIRE_FALSE(endless);
  CHECK(endless.error().code == Errc::bad_setting);
  CHECK(endless.error().what.find("/dev/zero is too long") != std::string::npos);
}

TEST_CASE("merging replaces the rows of the same case and size") {
  detail::TuningTable table = table_of(1024, "Ring/Simple", 5, "Tree/LL", 6);
  table.merge(table_of(1024, "Ring/Simple", 7, "Tree/LL", 6));
  table.merge(table_of(2048, "Ring/Simple", 9, "Tree/LL", 6));
  REQUIRE(table.rows.size() == 2);
  CHECK(table.rows[0].us[0].second == 7);
  detail::TuningCase elsewhere = here;
  elsewhere.ranks = 3;
  CHECK(table.of(elsewhere).empty());
  CHECK(table.of(here).size() == 2);
}

TEST_CASE("a choice goes by the measurements of its case, and by the model without") {
  // The model has it the other way round for both sizes.
  detail::TuningTable table = table_of(64, "Ring/Simple", 1, "Doubling/Simple", 2);
  table.merge(table_of(1 << 22, "Ring/Simple", 900, "Doubling/Simple", 500));
  const File file{table.json()};
  for (const Index bytes : {16, 64, 200}) {
    const auto choice = choice_with(file.path(), file.path(), bytes);
    REQUIRE(choice);
    CHECK(choice->composition == "Ring/Simple");
    CHECK(choice->measured);
    CHECK(choice->why.find("measured on 2 ranks over shm") == 0);
    CHECK(choice->runner_up == "Doubling/Simple");
  }
  const auto large = choice_with(file.path(), file.path(), 1 << 23);
  REQUIRE(large);
  CHECK(large->composition == "Doubling/Simple");
  CHECK(large->us == Approx(1000));
  for (detail::TuningRow& row : table.rows) row.where.ranks = 3;
  const File other{table.json()};
  const auto model = choice_with(other.path(), other.path(), 64);
  REQUIRE(model);
  CHECK(model->composition == "Doubling/Simple");
  CHECK_FALSE(model->measured);
}

TEST_CASE("ranks of different limits choose alike, by what was measured with the strictest") {
  detail::TuningTable table = table_of(64, "Ring/Simple", 1, "Doubling/Simple", 2);
  table.rows[0].where.max_ctas = 4;
  table.merge(table_of(64, "Ring/Simple", 2, "Doubling/Simple", 1));
  const File file{table.json()};
  const auto choice = choice_with(file.path(), file.path(), 64, 4);
  REQUIRE(choice);
  CHECK(choice->composition == "Ring/Simple");
}

TEST_CASE("what a table says of small messages, it does not say of large ones") {
  // Only one was measured, only at 64 bytes: the model's winner of large messages stays.
  detail::TuningTable table = table_of(64, "Ring/Simple", 1, "Doubling/Simple", 2);
  const Index large = 1 << 24;
  const auto by_model = choice_with("", "", large);
  REQUIRE(by_model);
  const std::string loser =
      by_model->composition == "Ring/Simple" ? "Doubling/Simple" : "Ring/Simple";
  std::erase_if(table.rows[0].us, [&](const auto& one) { return one.first != loser; });
  const File file{table.json()};
  const auto small = choice_with(file.path(), file.path(), 64);
  REQUIRE(small);
  CHECK(small->composition == loser);
  const auto choice = choice_with(file.path(), file.path(), large);
  REQUIRE(choice);
  CHECK(choice->composition == by_model->composition);
  CHECK_FALSE(choice->measured);
}

TEST_CASE("CCL_TUNE_FILE names the table where the Config does not") {
  const File file{table_of(64, "Ring/Simple", 1, "Doubling/Simple", 2).json()};
  ::setenv("CCL_TUNE_FILE", file.path().c_str(), 1);
  const auto choice = choice_with("", "", 64);
  ::unsetenv("CCL_TUNE_FILE");
  REQUIRE(choice);
  CHECK(choice->composition == "Ring/Simple");
}

TEST_CASE("different tables on ranks are an error, and so is an unreadable table") {
  const File file{table_of(64, "Ring/Simple", 1, "Doubling/Simple", 2).json()};
  const auto differ = choice_with(file.path(), "", 64);
  REQUIRE_FALSE(differ);
  CHECK(differ.error().code == Errc::mismatch);
  CHECK(differ.error().what.find("different tables") != std::string::npos);
  CHECK_FALSE(choice_with(file.path(), "/no/such/file", 64));
  // The difference is smaller than the digits of a table; each has another fastest composition for
  // 512 bytes.
  const auto close = [](const std::string& ring) {
    const std::string where = R"({"op": "all_reduce", "ranks": 2, "hosts": 1, "path": "shm",
      "compute_capability": 0, "max_ctas": 0, "bytes": )";
    return R"({"format": "ccl tuning table 1", "rows": [)" + where +
           R"(64, "us": {"Doubling/Simple": 2, "Ring/Simple": )" + ring + "}}, " + where +
           R"(4096, "us": {"Doubling/Simple": 1, "Ring/Simple": 2}}]})";
  };
  const File faster{close("0.9996")}, slower{close("1.0004")};
  const auto nearly = choice_with(faster.path(), slower.path(), 512);
  REQUIRE_FALSE(nearly);
  CHECK(nearly.error().what.find("different tables") != std::string::npos);
}
