#include <ccl/comm/report.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/report_text.hpp"

namespace ccl {

using namespace detail;

namespace {

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    if (!text.empty()) text += ", ";
    if (text.size() > 100) return text + "...";
    text += j == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[j]);
    i = j + 1;
  }
  return text;
}

}  // namespace

std::string detail::say(const Operation& op) {
  std::string text = op.what;
  if (op.count >= 0 && op.type[0] != 0) text += fmt::format(", {} {}", op.count, op.type);
  if (op.redop[0] != 0) text += fmt::format(", {}", op.redop);
  if (op.root >= 0) text += fmt::format(", root {}", op.root);
  return text;
}
std::string detail::say_numbered(const Operation& op) {
  if (op.number == 0) return fmt::format("call {} of {}", op.call, op.what);
  return fmt::format("operation {} ({})", op.number, say(op));
}
std::string detail::say_ranks(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", list(ranks));
}
bool detail::waits_for_network(const RankStatus& of) {
  return of.waits.peer >= 0 && of.waits.peer == of.rank &&
         std::ranges::any_of(of.steps, [&](const WireSteps& s) { return s.peer == of.rank; });
}

std::string detail::say_awaited(const RankStatus& of) {
  return waits_for_network(of) ? "the network that reduces between hosts"
                               : fmt::format("rank {}", of.waits.peer);
}

std::string detail::say_running_time(const RankStatus& of, const Operation& op) {
  return op.started_ns == 0 ? "" : fmt::format(" for {:.3f} s", age_s(of, op.started_ns));
}
double detail::age_s(const RankStatus& of, Word then_ns) {
  return then_ns == 0 || then_ns > of.now_ns ? 0 : double(of.now_ns - then_ns) / 1e9;
}

std::string Report::text() const {
  std::string text = summary.empty() ? std::string{} : summary + "\n";
  std::map<std::string, std::vector<int>> groups;
  for (const RankStatus& of : ranks) {
    if (!of.answered) {
      groups["no answer"].push_back(of.rank);
      continue;
    }
    std::string line;
    const Operation* op = of.running();
    if (op == nullptr && !of.operations.empty()) op = &of.operations.back();
    if (op == nullptr) {
      line = "no operation yet";
    } else {
      line = fmt::format("{}: {}", say_numbered(*op), name(op->state));
    }
    groups[line].push_back(of.rank);
  }
  for (const auto& [line, who] : groups) text += fmt::format("  {}: {}\n", say_ranks(who), line);
  for (const RankStatus& of : ranks) {
    const bool matters = of.rank == behind || of.rank == waiting;
    if (!of.answered || (!matters && ranks.size() > 16)) continue;
    text +=
        fmt::format("  rank {} on {} (pid {}) has called {}", of.rank, of.host, of.pid, of.called);
    if (!of.rendezvous.empty()) text += fmt::format(", is in {}", of.rendezvous);
    if (const Operation* op = of.running()) {
      text += fmt::format(", {}{}", say_numbered(*op), say_running_time(of, *op));
      if (of.waits.peer >= 0) {
        text += fmt::format(", waits for {} at step {}", say_awaited(of), of.waits.step);
      }
    }
    if (!of.shortage.empty()) text += fmt::format(", {}", of.shortage);
    text += "\n";
    const Operation* const running = of.running();
    for (const WireSteps& s : of.steps) {
      if (running == nullptr || s.composition != running->composition) continue;
      if (ranks.size() > 16 && s.peer != behind && s.peer != waiting) continue;
      const std::string peer =
          s.peer == of.rank ? "the network that reduces" : fmt::format("rank {}", s.peer);
      text += fmt::format("    {} {}, channel {}: {} steps filled, {} drained\n",
                          s.sends ? "to" : "from", peer, s.channel, s.filled, s.drained);
    }
  }
  return text;
}

}  // namespace ccl
