#include "report.hpp"

#include <ccl/version.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <thread>

#include "rival.hpp"
#include <sys/utsname.h>
#include <unistd.h>

namespace ccl::perf {
namespace {

std::string processor() {
  std::ifstream info{"/proc/cpuinfo"};
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    return line.substr(std::min(line.find(':') + 2, line.size()));
  }
  return "unknown";
}

bool is_rooted(const Shape& shape) {
  return shape.op == "broadcast" || shape.op == "reduce" || shape.op == "gather" ||
         shape.op == "scatter";
}
bool is_reducing(const Shape& shape) {
  return shape.op == "all_reduce" || shape.op == "reduce" || shape.op == "reduce_scatter";
}

}  // namespace

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Report::Report(const Options& options, int ranks, bool prints)
    : options_{options},
      ranks_{ranks},
      prints_{prints},
      terminal_{::isatty(STDERR_FILENO) != 0},
      printed_at_{now_s()} {
  if (!prints_) return;
  utsname machine{};
  ::uname(&machine);
  fmt::print("# ccl {} {}, {} ranks, {} cores of {} on {}\n", ccl::version, options.op, ranks,
             std::thread::hardware_concurrency(), processor(), machine.nodename);
  if (options.compare) {
    fmt::print("# beside {}; ratio: its time over ccl's, above 1 where ccl is faster\n",
               rival::version());
  }
  fmt::print("# {:>10} {:>12} {:>8} {:>6} {:>4} {:>10} {:>8} {:>8} {:>7}  {:<16}{}\n", "size",
             "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "composition",
             options.compare ? fmt::format(" {:>10} {:>6}", rival::name(), "ratio") : "");
  fmt::print("# {:>10} {:>12} {:>8} {:>6} {:>4} {:>10} {:>8} {:>8} {:>7}  {:<16}{}\n", "(B)",
             "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "",
             options.compare ? fmt::format(" {:>10}", "(us)") : "");
  std::fflush(stdout);
}

void Report::add(const Row& row) {
  if (!prints_) return;
  rows_.push_back(row);
  if (open_line_) fmt::print(stderr, "\r{:78}\r", "");
  open_line_ = false;
  std::string rivals;
  if (options_.compare && row.rival_us > 0) {
    rivals = fmt::format(" {:>10.2f} {:>6.2f}", row.rival_us, row.rival_us / row.time_us);
  } else if (options_.compare) {
    rivals = fmt::format(" {:>10} {:>6}", "n/a", "");
  }
  fmt::print("{:>12} {:>12} {:>8} {:>6} {:>4} {:>10.2f} {:>8.3f} {:>8.3f} {:>7}  {:<16}{}\n",
             row.shape.bytes, row.shape.count, name(row.type),
             is_reducing(row.shape) ? redop_names[int(row.redop)] : "none",
             is_rooted(row.shape) ? row.shape.root : -1, row.time_us, row.alg_gbs(), row.bus_gbs(),
             row.wrong < 0 ? "n/a" : std::to_string(row.wrong), row.composition, rivals);
  std::fflush(stdout);
  printed_at_ = now_s();
}

void Report::progress(int done, int all, const std::string& doing) {
  if (!prints_ || now_s() - printed_at_ < (terminal_ ? 1.0 : 10.0)) return;
  fmt::print(stderr, "{}# {} of {} done; now {}{}", terminal_ ? "\r" : "", done, all, doing,
             terminal_ ? "" : "\n");
  std::fflush(stderr);
  open_line_ = terminal_;
  printed_at_ = now_s();
}

bool Report::finish() {
  if (!prints_) return true;
  double bus = 0;
  Index wrong = 0;
  for (const Row& row : rows_) {
    bus += row.bus_gbs();
    wrong += std::max<Index>(row.wrong, 0);
  }
  if (options_.check) {
    fmt::print("# wrong elements: {}{}\n", wrong, wrong == 0 ? " (OK)" : " (FAILED)");
  } else {
    fmt::print("# results were not checked\n");
  }
  if (!rows_.empty()) {
    fmt::print("# average bus bandwidth: {:.4g} GB/s\n", bus / double(rows_.size()));
  }
  std::fflush(stdout);
  if (options_.json.empty()) return wrong == 0;

  utsname machine{};
  ::uname(&machine);
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  nlohmann::json file = {
      {"program", "ccl_perf"},
      {"version", ccl::version},
      {"build", CCL_PERF_BUILD_TYPE},
      {"compiler", __VERSION__},
      {"date", date},
      {"command", options_.command},
      {"machine",
       {{"host", machine.nodename},
        {"system", fmt::format("{} {} {}", machine.sysname, machine.release, machine.machine)},
        {"processor", processor()},
        {"cores", std::thread::hardware_concurrency()}}},
      {"collective", options_.op},
      {"ranks", ranks_},
      {"launch", options_.launch == Launch::threads     ? "threads"
                 : options_.launch == Launch::processes ? "processes"
                                                        : "environment"},
      {"transport", options_.transport.empty() ? "auto" : options_.transport},
      {"in_place", options_.in_place},
      {"wrong", wrong},
      {"rows", nlohmann::json::array()}};
  if (options_.compare) file["rival"] = rival::version();
  for (const Row& row : rows_) {
    nlohmann::json line = {{"bytes", row.shape.bytes},
                           {"count", row.shape.count},
                           {"type", std::string{name(row.type)}},
                           {"root", row.shape.root},
                           {"composition", row.composition},
                           {"plan",
                            {{"channels", row.plan.channels},
                             {"slot_count", row.plan.slot_count},
                             {"slot_bytes", row.plan.slot_bytes},
                             {"slice_steps", row.plan.slice_steps},
                             {"chunk_steps", row.plan.chunk_steps}}},
                           {"iterations", row.iterations},
                           {"rounds", options_.rounds},
                           {"time_us", row.time_us},
                           {"least_us", row.least_us},
                           {"algbw_gbs", row.alg_gbs()},
                           {"busbw_gbs", row.bus_gbs()}};
    if (is_reducing(row.shape)) line["redop"] = std::string{redop_names[int(row.redop)]};
    if (row.wrong >= 0) line["wrong"] = row.wrong;
    if (row.rival_us > 0) {
      line["rival_us"] = row.rival_us;
      line["rival_least_us"] = row.rival_least_us;
    }
    file["rows"].push_back(std::move(line));
  }
  std::ofstream out{options_.json};
  out << file.dump(1) << '\n';
  out.close();
  if (!out) {
    fmt::print(stderr, "ccl_perf: cannot write {} ({})\n", options_.json, std::strerror(errno));
    return false;
  }
  return wrong == 0;
}

}  // namespace ccl::perf
