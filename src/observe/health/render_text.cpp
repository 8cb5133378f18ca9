#include <ccl/version.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/nccl_result.hpp"
#include "base/report_text.hpp"
#include "base/text.hpp"
#include "observe/health/render.hpp"

namespace ccl::detail::health {
namespace {

std::string underlined(std::string_view title) {
  return fmt::format("\n{}\n{}\n\n", title, std::string(title.size(), '='));
}
/// "4" if all are equal, "2-4" otherwise.
std::string span_of(const std::vector<std::size_t>& all) {
  if (all.empty()) return "0";
  const auto [least, most] = std::ranges::minmax(all);
  return least == most ? fmt::format("{}", least) : fmt::format("{}-{}", least, most);
}

/// Processes of each host, and GPUs of each process.
struct Places {
  std::map<std::string, std::map<int, std::set<int>>> hosts;

  void add(const CommView& of) {
    for (const RankView& rank : of.ranks) {
      auto& gpus = hosts[rank.address][rank.pid];
      if (rank.device >= 0) gpus.insert(rank.device);
    }
  }
  std::vector<std::size_t> processes_per_host() const {
    std::vector<std::size_t> all;
    for (const auto& [host, processes] : hosts) all.push_back(processes.size());
    return all;
  }
  std::vector<std::size_t> gpus_per_process() const {
    std::vector<std::size_t> all;
    for (const auto& [host, processes] : hosts) {
      for (const auto& [pid, gpus] : processes) all.push_back(gpus.size());
    }
    return all;
  }
};
std::size_t sum(const std::vector<std::size_t>& all) {
  std::size_t total = 0;
  for (const std::size_t one : all) total += one;
  return total;
}

std::string state_of(const CommView& of) {
  bool any = false, up = true, finalizes = false, aborted = false;
  for (const RankView& rank : of.ranks) {
    if (!rank.status.answered) continue;
    any = true;
    up = up && rank.health.is_up != 0;
    finalizes = finalizes || rank.health.finalize_called != 0;
    aborted = aborted || rank.health.error == int(Errc::aborted);
  }
  return !any ? "NOCOMM" : aborted ? "ABORT" : finalizes ? "FINALIZE" : up ? "RUNNING" : "INIT";
}
bool has_error(const CommView& of) {
  return std::ranges::any_of(of.ranks, [](const RankView& rank) {
    return rank.status.answered && rank.health.error != 0;
  });
}
/// True if ranks that answer have called operations different numbers of times.
bool counts_differ(const CommView& of) {
  const RankView* first = nullptr;
  for (const RankView& rank : of.ranks) {
    if (!rank.status.answered) continue;
    if (first == nullptr) first = &rank;
    if (rank.status.called != first->status.called) return true;
  }
  return false;
}
std::string errors_of(const CommView& of) {
  std::string text;
  const auto add = [&](bool there, const char* word) {
    if (there) text += fmt::format("{}{}", text.empty() ? "" : ",", word);
  };
  add(of.missing() > 0, of.asked ? "INCOMPLETE" : "NOT ASKED");
  add(has_error(of), "ERROR");
  add(counts_differ(of), "MISMATCH");
  return text.empty() ? "OK" : text;
}

std::string rank_line(const RankView& of, int rank) {
  const std::string device = of.device < 0 ? "CPU" : fmt::format("GPU {}", of.device);
  return fmt::format("  Rank {} -- {} managed by process {} on node {}", rank, device, of.pid,
                     of.address);
}

/// State of a rank of `in` that has sent nothing.
std::string_view absence_of(const CommView& in, bool dead) {
  return dead ? "considered dead" : in.asked ? "unresponsive" : "not asked";
}

std::string rank_state(const CommView& in, const RankView& of) {
  if (!of.status.answered) return std::string{absence_of(in, of.dead)};
  std::string text = fmt::format("has called {}", of.status.called);
  if (const Operation* op = of.status.running()) {
    text += fmt::format(", {}{}", say_numbered(*op), say_running_time(of.status, *op));
    if (of.status.waits.peer >= 0) {
      text +=
          fmt::format(", waits for {} at step {}", say_awaited(of.status), of.status.waits.step);
    }
  }
  if (of.health.error != 0) text += fmt::format(", failed: {}", name(Errc(of.health.error)));
  return text;
}

std::string summary_table(const Places& places) {
  const auto processes = places.processes_per_host(), gpus = places.gpus_per_process();
  return fmt::format(
      "{:>8} {:>10} {:>10} {:>11} {:>8}\n{:>8} {:>10} {:>10} {:>11} {:>8}\n"
      "{:>8} {:>10} {:>10} {:>11} {:>8}\n",
      "Nodes", "Processes", "GPUs", "Processes", "GPUs", "(total)", "per node", "per process",
      "(total)", "(total)", places.hosts.size(), span_of(processes), span_of(gpus), sum(processes),
      sum(gpus));
}

constexpr std::string_view row = "{:>5} {:>5} {:>5} {:>9} {:>9} {:>9}  {:<9} {}\n";

std::string communicator_row(const CommView& of, std::size_t group) {
  Places places;
  places.add(of);
  std::map<std::string, std::size_t> ranks_on;
  for (const RankView& rank : of.ranks) ++ranks_on[rank.address];
  std::vector<std::size_t> per_node;
  for (const auto& [host, ranks] : ranks_on) per_node.push_back(ranks);
  return fmt::format(fmt::runtime(row), group, 1, places.hosts.size(), span_of(per_node),
                     of.ranks.size(), of.ranks.size(), state_of(of), errors_of(of));
}

std::string title_of(const CommView& of, std::size_t group, std::string_view what) {
  return fmt::format("#{}-0 ({:016x}) {}{}{}\n", group, of.hash, on_one_line(what),
                     of.name.empty() ? "" : ", ", on_one_line(of.name));
}

std::string error_blocks(const CommView& of, std::size_t group) {
  std::string text;
  for (const bool dead : {false, true}) {
    std::string lines;
    int count = 0;
    for (std::size_t r = 0; r < of.ranks.size(); ++r) {
      const RankView& rank = of.ranks[r];
      if (rank.status.answered || rank.dead != dead) continue;
      ++count;
      lines += rank_line(rank, int(r)) + "\n";
    }
    if (count == 0) continue;
    text += title_of(of, group,
                     dead       ? "DEAD"
                     : of.asked ? "INCOMPLETE"
                                : "NOT ASKED") +
            fmt::format("  Missing communicator data from {} rank{} ({})\n{}\n", count,
                        count == 1 ? "" : "s", absence_of(of, dead), lines);
  }
  std::string lines;
  for (std::size_t r = 0; r < of.ranks.size(); ++r) {
    const RankView& rank = of.ranks[r];
    if (!rank.status.answered || rank.health.error == 0) continue;
    lines += fmt::format("{}: {} (NCCL's {})\n", rank_line(rank, int(r)),
                         name(Errc(rank.health.error)), nccl_error(rank.health));
  }
  if (!lines.empty()) text += title_of(of, group, "ERROR") + lines + "\n";
  return text;
}

std::string warning_blocks(const CommView& of, std::size_t group) {
  if (!counts_differ(of)) return {};
  std::map<Word, std::vector<int>> counts;
  for (std::size_t r = 0; r < of.ranks.size(); ++r) {
    if (of.ranks[r].status.answered) counts[of.ranks[r].status.called].push_back(int(r));
  }
  std::string text = title_of(of, group, "MISMATCH") +
                     "  Communicator ranks have different collective operation counts\n";
  for (const auto& [called, ranks] : counts) {
    text += fmt::format("  {} launched up to operation {}\n", say_ranks(ranks), called);
  }
  return text + "\n";
}

}  // namespace

std::string status_text(const Snapshot& snapshot, bool verbose) {
  const auto& all = snapshot.communicators;
  Places places;
  for (const CommView& of : all) places.add(of);
  std::string text = fmt::format(
      "ccl version {}, interface of NCCL {}\nCUDA's versions are not "
      "asked for\n",
      version, nccl_version);
  text += underlined("Job summary") + summary_table(places);
  text += underlined(fmt::format("Communicators... ({:.2f}s)", snapshot.collection_s));
  text += fmt::format(fmt::runtime(row), "Group", "Comms", "Nodes", "Ranks", "Ranks", "Ranks",
                      "Status", "Errors");
  text +=
      fmt::format(fmt::runtime(row), "#", "in", "in", "per node", "per comm", "in group", "", "");
  for (std::size_t i = 0; i < all.size(); ++i) text += communicator_row(all[i], i);
  text += underlined("Errors");
  for (std::size_t i = 0; i < all.size(); ++i) text += error_blocks(all[i], i);
  text += underlined("Warnings");
  if (snapshot.timeouts > 0) {
    text += fmt::format(
        "TIMEOUT\n  Encountered {} communicator{} with ranks that did not answer in "
        "time\n\n",
        snapshot.timeouts, snapshot.timeouts == 1 ? "" : "s");
  }
  for (std::size_t i = 0; i < all.size(); ++i) text += warning_blocks(all[i], i);
  text += underlined("Progress");
  for (std::size_t i = 0; i < all.size(); ++i) {
    text += title_of(all[i], i, all[i].diagnosis.summary);
    for (std::size_t r = 0; verbose && r < all[i].ranks.size(); ++r) {
      text +=
          rank_line(all[i].ranks[r], int(r)) + ": " + rank_state(all[i], all[i].ranks[r]) + "\n";
    }
  }
  return text;
}

std::string diagnostics_text(const Snapshot& snapshot) {
  std::string text;
  for (std::size_t i = 0; i < snapshot.communicators.size(); ++i) {
    const CommView& of = snapshot.communicators[i];
    const RankView& mine = of.ranks[std::size_t(of.asking)];
    const auto line = [&](bool ok, std::string_view what) {
      text += fmt::format("{}:{} NCCL DIAG [{}] communicator {:016x}: {}\n", mine.address, mine.pid,
                          ok ? "OK" : "INFO", of.hash, on_one_line(what));
    };
    line(of.missing() == 0, fmt::format("{} of {} ranks answer",
                                        int(of.ranks.size()) - of.missing(), of.ranks.size()));
    line(!has_error(of), has_error(of) ? "it has failed" : "no rank has failed");
    line(of.diagnosis.behind < 0, of.diagnosis.summary);
    for (std::size_t r = 0; r < of.ranks.size(); ++r) {
      const RankView& rank = of.ranks[r];
      if (rank.status.answered && rank.health.error == 0) continue;
      line(false, fmt::format("rank {} on {}, process {}: {}", r, rank.address, rank.pid,
                              rank_state(of, rank)));
    }
  }
  return text.empty() ? "no communicator is here\n" : text;
}

}  // namespace ccl::detail::health
