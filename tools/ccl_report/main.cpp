// Reads the flight records of a job's ranks and tells who was behind.
#include <ccl/comm/flight_record.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "timeline.hpp"
#include <CLI/CLI.hpp>

namespace {

using report::Records;

ccl::Result<void> read_file(const std::string& path, Records& into) {
  std::ifstream in{path};
  std::string text;
  char part[1 << 16];
  // An iterator of the stream would throw what a folder of such a name makes of a read.
  while (in.read(part, sizeof part) || in.gcount() > 0) text.append(part, std::size_t(in.gcount()));
  if (!in.eof()) {
    return ccl::fail(ccl::Errc::invalid_argument,
                     fmt::format("cannot read {} ({}); name a folder of CCL_DUMP_DIR, or its files",
                                 path, std::strerror(errno)));
  }
  auto record = ccl::read_flight_record(text);
  if (!record) {
    ccl::Error error = std::move(record).error();
    error.what = fmt::format("{}: {}", path, error.what);
    return ccl::fail(std::move(error));
  }
  auto& known = into[record->communicator];
  if (!known.empty() && known.front().ranks != record->ranks) {
    return ccl::fail(ccl::Errc::mismatch,
                     fmt::format("{}: it is of {} ranks, and others of the communicator are of {}",
                                 path, record->ranks, known.front().ranks));
  }
  known.push_back(*std::move(record));
  return {};
}

/// Files of a folder, or `path` itself.
std::vector<std::string> files_of(const std::string& path) {
  std::error_code not_a_folder;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator{path, not_a_folder}) {
    const std::string name = entry.path().filename();
    if (name.starts_with("ccl_") && name.ends_with(".json")) files.push_back(entry.path());
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

ccl::Result<void> write(const std::string& path, const std::string& text) {
  std::ofstream out{path};
  out << text;
  out.close();
  if (out) return {};
  return ccl::fail(ccl::Errc::system, fmt::format("cannot write {} ({}); name another file", path,
                                                  std::strerror(errno)));
}

/// Options of the command line.
struct Wanted {
  std::vector<std::string> paths;
  std::string trace, page;
};

ccl::Result<void> run(const Wanted& wanted) {
  Records records;
  for (const std::string& path : wanted.paths) {
    for (const std::string& file : files_of(path)) {
      const auto read = read_file(file, records);
      if (!read) fmt::print(stderr, "ccl_report: {}\n", read.error().what);  // the others count
    }
  }
  if (records.empty()) {
    return ccl::fail(ccl::Errc::invalid_argument,
                     fmt::format("no file ccl_*.json is in {}; set CCL_DUMP_DIR for the job",
                                 wanted.paths.front()));
  }
  std::string text;
  for (const auto& [communicator, of] : records) text += text_of(of);
  fmt::print("{}", text);
  if (wanted.trace.empty() && wanted.page.empty()) return {};
  const auto rows = report::timeline_of(records);
  const std::string trace = report::trace_of(rows);
  if (!wanted.trace.empty()) CCL_CHECK(write(wanted.trace, trace));
  if (!wanted.page.empty()) CCL_CHECK(write(wanted.page, report::page_of(trace, text)));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Who was behind, by the flight records that ranks have written", "ccl_report"};
  Wanted wanted;
  app.add_option("path", wanted.paths, "folders of CCL_DUMP_DIR, or files ccl_*.json in them")
      ->required();
  app.add_option(
      "--trace", wanted.trace,
      "write a trace for Perfetto: operations, phases and steps over networks, on one time line");
  app.add_option("--page", wanted.page,
                 "write an HTML page that shows the trace without a network");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  try {
    const auto done = run(wanted);
    if (done) return 0;
    fmt::print(stderr, "ccl_report: {}\n", done.error().what);
  } catch (const std::exception& error) {  // such as bad_alloc
    fmt::print(stderr, "ccl_report: {}\n", error.what());
  }
  return 1;
}
