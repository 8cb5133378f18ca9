// Reads the flight records of a job's ranks and tells who was behind.
#include <ccl/comm/flight_record.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

namespace {

using Records = std::map<std::string, std::vector<ccl::FlightRecord>>;  // by communicator

ccl::Result<void> read_file(const std::string& path, Records& into) {
  std::ifstream in{path};
  if (!in) {
    return ccl::fail(ccl::Errc::invalid_argument,
                     fmt::format("cannot read {} ({}); name a folder of CCL_DUMP_DIR, or its files",
                                 path, std::strerror(errno)));
  }
  auto record = ccl::read_flight_record(std::string{std::istreambuf_iterator<char>{in}, {}});
  if (!record) {
    ccl::Error error = std::move(record).error();
    error.what = fmt::format("{}: {}", path, error.what);
    return ccl::fail(std::move(error));
  }
  into[record->communicator].push_back(*std::move(record));
  return {};
}

/// Files of a folder, or `path` itself.
std::vector<std::string> files_of(const std::string& path) {
  std::error_code not_a_folder;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator{path, not_a_folder}) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  if (not_a_folder) files.push_back(path);
  std::ranges::sort(files);
  return files;
}

std::string text_of(const std::vector<ccl::FlightRecord>& records) {
  const ccl::FlightRecord& any = records.front();
  std::vector<ccl::RankStatus> ranks(static_cast<std::size_t>(any.ranks));
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].rank = int(r);
  std::string failure;  // of one rank: all ranks have the same
  for (const ccl::FlightRecord& of : records) {
    const int rank = of.status.rank;
    if (rank < any.ranks) ranks[std::size_t(rank)] = of.status;
    if (failure.empty()) failure = of.failure;
  }
  const auto missing = std::ranges::count(ranks, false, &ccl::RankStatus::answered);
  std::string text = fmt::format("communicator {}{}{} of {} ranks", any.communicator,
                                 any.name.empty() ? "" : " ", any.name, any.ranks);
  if (missing > 0) text += fmt::format(", {} of which left no record", missing);
  text += "\n" + ccl::diagnose(std::move(ranks), -1).text();
  if (!failure.empty()) text += fmt::format("it failed: {}\n", failure);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Who was behind, by the flight records that ranks have written", "ccl_report"};
  std::vector<std::string> paths;
  app.add_option("path", paths, "folders of CCL_DUMP_DIR, or files ccl_*.json in them")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  Records records;
  for (const std::string& path : paths) {
    for (const std::string& file : files_of(path)) {
      const auto read = read_file(file, records);
      if (read) continue;
      fmt::print(stderr, "ccl_report: {}\n", read.error().what);
      return 1;
    }
  }
  if (records.empty()) {
    fmt::print(stderr, "ccl_report: no file ccl_*.json is in {}; set CCL_DUMP_DIR for the job\n",
               paths.front());
    return 1;
  }
  for (const auto& [communicator, of] : records) fmt::print("{}", text_of(of));
  return 0;
}
