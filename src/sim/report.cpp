#include <ccl/detail/sim/program.hpp>
#include <ccl/types/operations.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "base/plan_check.hpp"

namespace ccl {
namespace {

std::string size_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g} {}", bytes, units[unit]);
}

/// Factor from NCCL's algorithm bandwidth to its bus bandwidth.
double bus_factor(std::string_view op, int ranks) {
  const double others = double(ranks - 1) / ranks;
  if (op == AllReduce::name) return 2 * others;
  if (op == AllGather::name || op == ReduceScatter::name || op == AllToAll::name) return others;
  return 1;
}

}  // namespace

namespace detail {

Result<void> check_options(const sim::Cluster& cluster, Index bytes, const sim::Options& options,
                           Index slot_bytes, int line_bytes) {
  const auto bad = [](std::string what) { return fail(Errc::invalid_argument, std::move(what)); };
  if (bytes < 4) {
    return bad(fmt::format("nothing to simulate ({} bytes); give at least 4, one float", bytes));
  }
  if (options.root < 0 || options.root >= cluster.ranks()) {
    return bad(fmt::format("rank {} cannot be the root (there are ranks 0 to {}); name one of them",
                           options.root, cluster.ranks() - 1));
  }
  if (cluster.ranks() < 2) {
    return bad(
        "one rank alone has nobody to talk to; give more nodes, or a machine with more GPUs");
  }
  if (cluster.ranks() > 1 << 24) {
    return bad(fmt::format("{} ranks are too many (at most {}); give fewer nodes", cluster.ranks(),
                           1 << 24));
  }
  if (options.net_us && !(*options.net_us >= 0)) {
    return bad(
        fmt::format("a step over the network cannot take {} us; give 0 or more", *options.net_us));
  }
  if (cluster.domain_nodes() > 1 && line_bytes > sim::domain_line_bytes) {
    return fail(
        Errc::not_supported,
        fmt::format("it needs lines of {} bytes that land whole (between hosts of an NVLink "
                    "domain {} do); take Simple or LL",
                    line_bytes, sim::domain_line_bytes));
  }
  if (!options.plan) return {};
  Plan plan = *options.plan;
  if (plan.slot_bytes == 0) plan.slot_bytes = slot_bytes;
  const char* const broken = broken_rule(plan);
  if (broken == nullptr) return {};
  return bad(fmt::format(
      "a plan of {} channels, {} slots of {} bytes, slices of {} and chunks of {} "
      "steps cannot be ({}); give one that a communicator takes",
      plan.channels, plan.slot_count, plan.slot_bytes, plan.slice_steps, plan.chunk_steps, broken));
}

Result<void> check_distance(const sim::Cluster& cluster, int distance) {
  if (distance > 0 && distance < cluster.ranks()) return {};
  return fail(Errc::invalid_argument,
              fmt::format("no rank is {} ahead of another (there are {} ranks); give a distance of "
                          "1 to {}",
                          distance, cluster.ranks(), cluster.ranks() - 1));
}

Result<void> check_wires(const sim::Cluster& cluster, double wires) {
  constexpr double most = 4e6;
  if (wires <= most) return {};
  return fail(
      Errc::not_supported,
      fmt::format("{:.3g} wires between {} ranks are too many to replay (at most {:.3g}, and "
                  "the nodes do not repeat); give fewer nodes or channels",
                  wires, cluster.ranks(), most));
}

Result<sim::Report> report_of(const sim::Cluster& cluster, const SimProgram& program,
                              const sim::Options& options, std::string name, std::string_view op,
                              Index bytes) {
  CCL_TRY(SimOutcome outcome, replay(cluster, program, options));
  sim::Report report;
  report.name = std::move(name);
  report.bytes = bytes;
  report.ranks = cluster.ranks();
  report.nodes = cluster.nodes();
  report.domain_nodes = cluster.domain_nodes();
  report.us = outcome.us;
  report.bus_gbs = double(bytes) * bus_factor(op, report.ranks) / (outcome.us * 1e3);
  report.sent_bytes = outcome.payload;
  report.slices = outcome.slices;
  report.period = program.period;
  for (const SimStage& stage : program.stages) {
    Index steps = 0;
    for (const SimTrace& trace : stage.traces) {
      const bool all = trace.rounds >= trace.all_rounds;
      report.extended = report.extended || !all;
      const double more = all ? 1 : trace.all_rounds / trace.rounds;
      steps = std::max(steps, Index(double(trace.steps.size()) * more));
    }
    report.steps += steps;
    report.position_classes += int(stage.traces.size());
    Plan plan = stage.plan;
    plan.channels = stage.channels;
    report.plans.push_back(plan);
  }
  report.links = std::move(outcome.links);
  report.nics = std::move(outcome.nics);
  return report;
}

sim::Report repeated(sim::Report one, int times) {
  one.us *= times;
  one.bus_gbs /= times;
  one.sent_bytes *= times;
  one.steps *= times;
  for (sim::LinkLoad& link : one.links) link.bytes *= times;
  for (sim::NicLoad& nic : one.nics) {
    nic.sent *= times;
    nic.received *= times;
  }
  return one;
}

/// Adds the bytes of `more`; the nodes that both replayed count.
static void add_nics(std::vector<sim::NicLoad>& nics, const std::vector<sim::NicLoad>& more) {
  for (const sim::NicLoad& nic : more) {
    const auto same = std::find_if(nics.begin(), nics.end(), [&](const auto& n) {
      return n.node == nic.node && n.device == nic.device;
    });
    if (same == nics.end()) {
      nics.push_back(nic);
    } else {
      same->sent += nic.sent;
      same->received += nic.received;
    }
  }
}

sim::Report joined(sim::Report first, const sim::Report& then) {
  const double us = first.us + then.us;
  first.bus_gbs *= first.us / us;
  for (sim::LinkLoad& link : first.links) link.busy *= first.us / us;
  for (const sim::LinkLoad& link : then.links) {
    const auto same = std::find_if(first.links.begin(), first.links.end(),
                                   [&](const auto& l) { return l.name == link.name; });
    const double busy = link.busy * then.us / us;
    if (same == first.links.end()) {
      first.links.push_back(link);
      first.links.back().busy = busy;
    } else {
      same->bytes += link.bytes;
      same->busy += busy;
    }
  }
  std::stable_sort(first.links.begin(), first.links.end(),
                   [](const auto& a, const auto& b) { return a.busy > b.busy; });
  add_nics(first.nics, then.nics);
  first.us = us;
  first.sent_bytes += then.sent_bytes;
  first.steps += then.steps;
  first.slices += then.slices;
  first.position_classes += then.position_classes;
  first.period = first.period == then.period ? first.period : 0;
  first.extended = first.extended || then.extended;
  first.plans.insert(first.plans.end(), then.plans.begin(), then.plans.end());
  return first;
}

}  // namespace detail

namespace sim {

std::string Report::text() const {
  std::string text = fmt::format(
      "{} of {} on {} ranks ({} node{}{}): {:.1f} us, bus bandwidth {:.2f} GB/s\n", name,
      size_text(double(bytes)), ranks, nodes, nodes == 1 ? "" : "s",
      domain_nodes > 1 ? fmt::format(", NVLink domains of {}", domain_nodes) : "", us, bus_gbs);
  for (std::size_t p = 0, next = 0; p < plans.size(); p = next) {
    while (next < plans.size() && plans[next] == plans[p]) ++next;
    const Plan& plan = plans[p];
    text += fmt::format(
        "  plan: {} channels, {} slots of {}, slices of {} and chunks of {} steps{}\n",
        plan.channels, plan.slot_count, size_text(double(plan.slot_bytes)), plan.slice_steps,
        plan.chunk_steps, next - p > 1 ? fmt::format(", {} launches", next - p) : std::string());
  }
  text += fmt::format("  steps of a channel: {}; sent by all ranks: {}\n", steps,
                      size_text(sent_bytes));
  text +=
      fmt::format("  replayed: {} slices, {} class{} of positions{}{}\n", slices, position_classes,
                  position_classes == 1 ? "" : "es",
                  period > 0 ? fmt::format(", {} node{} for all", period, period == 1 ? "" : "s")
                             : std::string(),
                  extended ? "; the rest of the rounds at the pace of these" : "");
  constexpr std::size_t most = 12;
  for (std::size_t l = 0; l < links.size() && l < most; ++l) {
    const LinkLoad& load = links[l];
    text += fmt::format("  {}{}: {:g} GB/s, {}, busy {:.1f} %\n", l == 0 ? "hottest link " : "",
                        load.name, load.gbs, size_text(load.bytes), load.busy * 100);
  }
  if (links.size() > most) text += fmt::format("  and {} more links\n", links.size() - most);
  return text;
}

std::string Report::json() const {
  nlohmann::ordered_json all{{"name", name},
                             {"bytes", bytes},
                             {"ranks", ranks},
                             {"nodes", nodes},
                             {"domain_nodes", domain_nodes},
                             {"us", us},
                             {"bus_gbs", bus_gbs},
                             {"sent_bytes", sent_bytes},
                             {"steps", steps},
                             {"slices", slices},
                             {"seat_classes", position_classes},
                             {"period", period},
                             {"extended", extended},
                             {"plans", nlohmann::ordered_json::array()},
                             {"links", nlohmann::ordered_json::array()}};
  for (const Plan& plan : plans) {
    all["plans"].push_back({{"channels", plan.channels},
                            {"slot_count", plan.slot_count},
                            {"slot_bytes", plan.slot_bytes},
                            {"slice_steps", plan.slice_steps},
                            {"chunk_steps", plan.chunk_steps}});
  }
  for (const LinkLoad& load : links) {
    all["links"].push_back({{"name", load.name},
                            {"node", load.node},
                            {"gbs", load.gbs},
                            {"bytes", load.bytes},
                            {"busy", load.busy}});
  }
  return all.dump();
}

}  // namespace sim
}  // namespace ccl
