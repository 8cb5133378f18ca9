#include <ccl/simulate.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tool.hpp"

namespace tool {
namespace {

struct SimulateOptions {
  Source source;
  std::string format;
  ccl::sim::Composition what;
  std::uint64_t bytes = std::uint64_t{64} << 20;
  ccl::sim::Options simulation;
  int channels = 0, slots = 0, slice_steps = 0, chunk_steps = 0;
  std::uint64_t slot_bytes = 0;
};

/// Simulates every requested composition; prints the fastest in full.
ccl::Result<void> simulate(const SimulateOptions& options) {
  if (options.what.op.empty()) {
    CCL_TRY(const auto known, ccl::sim::compositions({}));
    std::set<std::string> ops;
    for (const auto& one : known) ops.insert(one.op);
    return ccl::fail(ccl::Errc::invalid_argument,
                     fmt::format("simulate takes an operation (none given); take one of {}",
                                 fmt::join(ops, " ")));
  }
  CCL_TRY(const Machine machine, look_at(options.source));
  CCL_TRY(const auto all, ccl::sim::compositions(options.what));
  CCL_TRY(const auto cluster, machine.cluster());
  ccl::sim::Options how = options.simulation;
  if (options.channels > 0) {
    how.plan.emplace();
    how.plan->channels = options.channels;
    if (options.slots > 0) how.plan->slot_count = options.slots;
    how.plan->slot_bytes = ccl::Index(options.slot_bytes);
    if (options.slice_steps > 0) how.plan->slice_steps = options.slice_steps;
    how.plan->chunk_steps = std::max(options.chunk_steps, how.plan->slice_steps);
  }
  std::vector<ccl::sim::Report> reports;
  for (const auto& composition : all) {
    // A communicator does not choose it there. Who names it gets the reason.
    const bool short_lines = cluster.domain_nodes() > 1 && composition.proto == "LL128";
    if (short_lines && options.what.proto.empty()) continue;
    CCL_TRY(auto report, ccl::sim::simulate(cluster, composition, ccl::Index(options.bytes), how));
    reports.push_back(std::move(report));
  }
  std::stable_sort(reports.begin(), reports.end(),
                   [](const auto& a, const auto& b) { return a.us < b.us; });
  if (options.format == "json") {
    fmt::print("[");
    for (std::size_t i = 0; i < reports.size(); ++i) {
      fmt::print("{}{}", i == 0 ? "" : ",\n ", reports[i].json());
    }
    fmt::print("]\n");
    return {};
  }
  fmt::print("{}", reports[0].text());
  for (std::size_t i = 1; i < reports.size(); ++i) {
    fmt::print("{:<28} {:12.1f} us {:9.2f} GB/s\n", reports[i].name, reports[i].us,
               reports[i].bus_gbs);
  }
  return {};
}

}  // namespace

Command add_simulate(CLI::App& app) {
  const auto options = std::make_shared<SimulateOptions>();
  CLI::App* const command =
      app.add_subcommand("simulate", "how long a collective would take on many such machines");
  options->source.add_cluster_options(*command);
  add_format(*command, options->format, {"text", "json"});
  const CLI::Range sizes{std::uint64_t{0}, std::uint64_t{1} << 60};  // limits of an Index
  command->add_option("operation", options->what.op, "all_reduce, broadcast ...");
  command->add_option("--bytes", options->bytes, "of the larger buffer: 64K, 1G (64M)")
      ->transform(CLI::AsSizeValue(false))
      ->check(sizes);
  command->add_option("--algo", options->what.algo, "Ring, Tree ...; else all");
  command->add_option("--proto", options->what.proto, "Simple, LL128 or LL; else all");
  command->add_option("--root", options->simulation.root, "of broadcast and reduce (0)");
  command->add_option("--distance", options->simulation.distance,
                      "of send_recv: each rank sends to the one so many ahead (1)");
  command->add_option("--net-us", options->simulation.net_us,
                      "latency of a step over the network (the cost model's)");
  command
      ->add_option("--budget", options->simulation.budget,
                   "slices to replay at most; the rest goes on at their pace (5e6)")
      ->check(CLI::Range(std::int64_t{1000}, std::int64_t{1} << 40));
  CLI::Option* own = command->add_option("--channels", options->channels,
                                         "a plan of one's own: this many channels, and");
  own->check(CLI::Range(1, 4096));
  command->add_option("--slot-bytes", options->slot_bytes, "of a slot (the protocol's)")
      ->transform(CLI::AsSizeValue(false))
      ->check(sizes)
      ->needs(own);
  const CLI::Range steps{1, 1 << 20};
  command->add_option("--slots", options->slots, "of a wire (8)")->check(steps)->needs(own);
  command->add_option("--slice-steps", options->slice_steps, "slots of a slice (1)")
      ->check(steps)
      ->needs(own);
  command->add_option("--chunk-steps", options->chunk_steps, "slots of a chunk (1)")
      ->check(steps)
      ->needs(own);
  return {command, [options] { return simulate(*options); }};
}

}  // namespace tool
