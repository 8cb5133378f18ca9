#include "report.hpp"

#include <ccl/version.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <thread>

#include "median.hpp"
#include "rival.hpp"
#include <sys/utsname.h>
#include <unistd.h>

namespace ccl::perf {
namespace {

nlohmann::json to_json(const Times& times) {
  nlohmann::json json = {{"name", times.name}, {"us", times.us}, {"wrong", times.wrong}};
  if (!times.wall_us.empty()) json["wall_us"] = times.wall_us;
  if (!times.failure.empty()) json["failure"] = times.failure;
  return json;
}

bool is_rooted(const Shape& shape) {
  return shape.op == "broadcast" || shape.op == "reduce" || shape.op == "gather" ||
         shape.op == "scatter";
}
bool is_reducing(const Shape& shape) {
  return shape.op == "all_reduce" || shape.op == "reduce" || shape.op == "reduce_scatter";
}

}  // namespace

std::string processor() {
  std::ifstream info{"/proc/cpuinfo"};
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    return line.substr(std::min(line.find(':') + 2, line.size()));
  }
  return "unknown";
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Times::median_us() const {
  return median(us);
}

void Row::finish_choice() {
  wrong = own.wrong;
  if (!own.takes_part) return;
  time_us = own.median_us();
  min_us = *std::min_element(own.us.begin(), own.us.end());
  if (const Times* const best = best_rival()) {
    rival_us = best->median_us();
    rival_least_us = *std::min_element(best->us.begin(), best->us.end());
  }
}

const Times* Row::best_rival() const {
  const Times* best = nullptr;
  for (const Times& rival : rivals) {
    if (!rival.takes_part || rival.wrong != 0) continue;
    if (best == nullptr || rival.median_us() < best->median_us()) best = &rival;
  }
  return best;
}

Report::Report(const Options& options, int ranks, bool prints, const Machine* machine)
    : options_{options},
      ranks_{ranks},
      machine_{machine},
      prints_{prints},
      terminal_{::isatty(STDERR_FILENO) != 0},
      printed_at_{now_s()} {
  if (!prints_) return;
  utsname system{};
  ::uname(&system);
  std::string rivals[2];
  if (machine_ != nullptr) {
    fmt::print("# ccl {} {}, {} ranks as {}, {} x {}, driver {}, CUDA {} (driver's {}), on {}\n",
               ccl::version, options.op, ranks,
               options.launch == Launch::threads ? "threads" : "processes", ranks, machine_->model,
               machine_->driver.empty() ? "unknown" : machine_->driver, machine_->runtime_cuda,
               machine_->driver_cuda, system.nodename);
    fmt::print("# {}; slowest rank, median of {}\n",
               options.graph != 0
                   ? fmt::format("by the GPU's clock, {} calls in a CUDA graph", options.graph)
                   : "by the GPU's clock, calls queued one by one",
               options.rounds);
    if (!machine_->nccl.empty()) {
      fmt::print("# beside {} ({}){}{}; best: its fastest mode; ratio: its time over ccl's\n",
                 machine_->nccl, machine_->nccl_library,
                 options.nccl_algo.empty() ? "" : ", NCCL_ALGO=" + options.nccl_algo,
                 options.nccl_proto.empty() ? "" : ", NCCL_PROTO=" + options.nccl_proto);
      rivals[0] = fmt::format(" {:>19} {:>10} {:<11} {:>19} {:>6}", "ccl min..max", "nccl", "best",
                              "min..max", "ratio");
      rivals[1] = fmt::format(" {:>19} {:>10} {:<11} {:>19}", "(us)", "(us)", "", "(us)");
    }
  } else {
    fmt::print("# ccl {} {}, {} ranks, {} cores of {} on {}\n", ccl::version, options.op, ranks,
               std::thread::hardware_concurrency(), processor(), system.nodename);
    if (!options.compare.empty()) {
      fmt::print("# beside {}; ratio: its time over ccl's, above 1 where ccl is faster\n",
                 rival::version());
      rivals[0] = fmt::format(" {:>10} {:>6}", rival::name(), "ratio");
      rivals[1] = fmt::format(" {:>10}", "(us)");
    }
  }
  fmt::print("# {:>10} {:>12} {:>8} {:>6} {:>4} {:>10} {:>8} {:>8} {:>7}  {:<16}{}\n", "size",
             "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "composition",
             rivals[0]);
  fmt::print("# {:>10} {:>12} {:>8} {:>6} {:>4} {:>10} {:>8} {:>8} {:>7}  {:<16}{}\n", "(B)",
             "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "", rivals[1]);
  std::fflush(stdout);
}

std::string Report::rival_columns(const Row& row) const {
  if (options_.compare.empty()) return {};
  const auto spread = [](const Times& times) {
    const auto [least, most] = std::minmax_element(times.us.begin(), times.us.end());
    return fmt::format("{:.2f}..{:.2f}", *least, *most);
  };
  if (options_.compare == "nccl") {
    const std::string own = row.own.takes_part ? spread(row.own) : "";
    const Times* const best = row.best_rival();
    if (best == nullptr) return fmt::format(" {:>19} {:>10}", own, "n/a");
    return fmt::format(" {:>19} {:>10.2f} {:<11} {:>19} {:>6.2f}", own, row.rival_us, best->name,
                       spread(*best), row.rival_us / row.time_us);
  }
  if (row.rival_us > 0) {
    return fmt::format(" {:>10.2f} {:>6.2f}", row.rival_us, row.rival_us / row.time_us);
  }
  return fmt::format(" {:>10} {:>6}", "n/a", "");
}

void Report::clear_line() {
  if (open_line_) fmt::print(stderr, "\r{:78}\r", "");
  open_line_ = false;
  printed_at_ = now_s();
}

void Report::add(const Row& row) {
  if (!prints_) return;
  rows_.push_back(row);
  for (const Times& rival : row.rivals) {
    if (rival.wrong == 0) continue;
    finding(fmt::format("NCCL {}: {} elements of {} B were wrong", rival.name, rival.wrong,
                        row.shape.bytes));
  }
  clear_line();
  const bool timed = row.time_us > 0;
  const auto number = [&](int width, int digits, double value) {
    return timed ? fmt::format("{:>{}.{}f}", value, width, digits)
                 : fmt::format("{:>{}}", "failed", width);
  };
  fmt::print("{:>12} {:>12} {:>8} {:>6} {:>4} {} {} {} {:>7}  {:<16}{}\n", row.shape.bytes,
             row.shape.count, name(row.type),
             is_reducing(row.shape) ? redop_names[int(row.redop)] : "none",
             is_rooted(row.shape) ? row.shape.root : -1, number(10, 2, row.time_us),
             number(8, 3, row.alg_gbs()), number(8, 3, row.bus_gbs()),
             row.wrong < 0 || !timed ? "n/a" : std::to_string(row.wrong), row.composition,
             rival_columns(row));
  if (row.explained) fmt::print("# {:>10} {}\n", "", row.explained->text());
  std::fflush(stdout);
}

void Report::add(const Start& start) {
  if (!prints_) return;
  starts_.push_back(start);
  clear_line();
  constexpr double mib = 1 << 20;
  fmt::print(
      "# {}: created in {:.3f} s, first call {:.3f} s, destroyed in {:.3f} s; {:.0f} MiB of "
      "each GPU, {:.0f} more after the first call\n",
      start.name, start.create_s, start.first_call_s, start.leave_s,
      double(start.create_bytes) / mib, double(start.first_call_bytes) / mib);
  std::fflush(stdout);
}

void Report::finding(const std::string& text) {
  if (!prints_) return;
  findings_.push_back(text);
  clear_line();
  fmt::print("# {}\n", text);
  std::fflush(stdout);
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
  int timed = 0;
  for (const Row& row : rows_) {
    wrong += std::max<Index>(row.wrong, 0);
    if (row.time_us <= 0) continue;
    bus += row.bus_gbs();
    ++timed;
  }
  if (timed < int(rows_.size()) || rows_.empty()) {
    fmt::print("# failed cases: {} of {}\n", int(rows_.size()) - timed, rows_.size());
  }
  if (options_.check && timed > 0) {
    fmt::print("# wrong elements: {}{}\n", wrong, wrong == 0 ? " (OK)" : " (FAILED)");
  } else if (!options_.check) {
    fmt::print("# results were not checked\n");
  }
  if (timed > 0) fmt::print("# average bus bandwidth: {:.4g} GB/s\n", bus / timed);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "ccl_perf: cannot write to stdout (%s)\n", std::strerror(errno));
    wrote_ = false;
  }
  if (options_.json.empty()) return wrong == 0 && wrote_;

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
      {"windows", options_.windows},
      {"registered", options_.registered},
      {"deterministic", options_.deterministic},
      {"wrong", wrong},
      {"rows", nlohmann::json::array()}};
  if (options_.compare == "mpi") file["rival"] = rival::version();
  if (machine_ != nullptr) {
    file["machine"]["gpus"] = machine_->gpus;
    file["machine"]["gpu"] = machine_->model;
    file["machine"]["driver"] = machine_->driver;
    file["machine"]["driver_cuda"] = machine_->driver_cuda;
    file["machine"]["cuda"] = machine_->runtime_cuda;
    file["graph"] = options_.graph;
    if (!machine_->nccl.empty()) {
      file["rival"] = machine_->nccl;
      file["rival_library"] = machine_->nccl_library;
      file["rival_algo"] = options_.nccl_algo;
      file["rival_proto"] = options_.nccl_proto;
    }
    file["remarks"] = findings_;
    for (const Start& start : starts_) {
      file["starts"].push_back({{"name", start.name},
                                {"create_s", start.create_s},
                                {"first_call_s", start.first_call_s},
                                {"leave_s", start.leave_s},
                                {"create_bytes", start.create_bytes},
                                {"first_call_bytes", start.first_call_bytes}});
    }
  }
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
                           {"rounds", options_.rounds}};
    if (row.explained) {
      const Explained& of = *row.explained;
      line["explained"] = {{"launch_us", of.launch_us},       {"before_us", of.before_us},
                           {"first_hop_us", of.first_hop_us}, {"steady_us", of.steady_us},
                           {"tail_us", of.tail_us},           {"link_first_us", of.link_first_us},
                           {"link_gbs", of.link_gbs},         {"steady_gbs", of.steady_gbs}};
      if (of.on_gpus) line["explained"]["data_gbs"] = of.data_gbs;
    }
    if (row.ctas != 0) line["max_ctas"] = row.ctas;
    if (row.time_us > 0) {
      line["time_us"] = row.time_us;
      line["least_us"] = row.min_us;
      line["algbw_gbs"] = row.alg_gbs();
      line["busbw_gbs"] = row.bus_gbs();
    }
    if (is_reducing(row.shape)) line["redop"] = std::string{redop_names[int(row.redop)]};
    if (row.wrong >= 0) line["wrong"] = row.wrong;
    if (row.rival_us > 0) {
      line["rival_us"] = row.rival_us;
      line["rival_least_us"] = row.rival_least_us;
    }
    if (machine_ != nullptr) {
      line["ccl"] = to_json(row.own);
      for (const Times& rival : row.rivals) line["nccl"].push_back(to_json(rival));
      if (const Times* const best = row.best_rival()) {
        line["best"] = best->name;
        line["ratio"] = row.rival_us / row.time_us;
      }
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
  return wrong == 0 && wrote_;
}

}  // namespace ccl::perf
