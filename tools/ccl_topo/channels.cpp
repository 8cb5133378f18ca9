#include <ccl/sim/cluster.hpp>
#include <ccl/topo/connect.hpp>
#include <ccl/topo/draw.hpp>
#include <ccl/topo/search.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <ranges>
#include <vector>

#include "tool.hpp"

namespace tool {
namespace {

namespace topo = ccl::topo;

struct ChannelsOptions {
  Source source;
  std::string format;
};

/// Names the ranks of a file that are not those of a job of this machine alone.
void report_ranks(const topo::Graph& graph) {
  const auto rank_of = [&](int gpu) { return graph.nodes[std::size_t(gpu)].gpu.rank; };
  std::vector<int> gpus = graph.of(topo::NodeType::gpu);
  std::erase_if(gpus, [&](int gpu) { return rank_of(gpu) < 0; });  // these take no part
  const int count = static_cast<int>(gpus.size());
  // No two ranks are equal, because the file was checked when read.
  const auto is_own = [&](int gpu) { return rank_of(gpu) < count; };
  if (std::all_of(gpus.begin(), gpus.end(), is_own)) return;
  fmt::print(stderr, "ranks {} of the file are taken as 0 to {}\n",
             fmt::join(gpus | std::views::transform(rank_of), " "), count - 1);
}

/// Prints the rings or trees that a communicator of these machines runs.
ccl::Result<void> channels(bool rings, const ChannelsOptions& options) {
  CCL_TRY(const Machine machine, look_at(options.source));
  const int nodes = machine.machines;
  report_ranks(machine.graph());
  CCL_TRY(const ccl::sim::Cluster cluster,
          timed(options.source, "search and joining", [&] { return machine.cluster(); }));
  const topo::ChannelPlan& plan = cluster.plan();
  const topo::ChannelGraph& wanted = rings ? plan.ring : plan.tree;
  if (options.format == "xml") {
    fmt::print("{}", topo::print_xml(topo::to_xml(
                         {plan.ring, plan.tree, plan.collnet_chain, plan.nvls, plan.collnet_direct},
                         cluster.machine())));
    return {};
  }
  if (options.format == "svg") {
    fmt::print("{}", !rings && nodes > 1 ? topo::trees_svg(nodes) : topo::to_svg(wanted));
    return {};
  }
  const topo::JoinedChannels joined = topo::channels_of(cluster.whole());
  if (options.format == "json") {
    fmt::print("{}", topo::to_json(joined));
    return {};
  }
  if (options.format == "dot") {
    fmt::print("{}", rings ? topo::rings_to_dot(joined) : topo::trees_to_dot(joined));
    return {};
  }
  fmt::print("{}", topo::print(wanted));
  const std::size_t count = rings ? joined.rings.size() : joined.trees.size();
  const int domain = cluster.domain_nodes();
  fmt::print("over {} machine{}{}: {} {}\n", nodes, nodes == 1 ? "" : "s",
             domain > 1 ? fmt::format(" in NVLink domains of {}", domain) : "", count,
             rings ? (count == 1 ? "ring" : "rings") : "trees, each second one a twin");
  for (std::size_t c = 0; c < count; ++c) {
    if (rings) {
      fmt::print("  {:>2}: {}\n", c, fmt::join(joined.rings[c], " "));
      continue;
    }
    fmt::print("  {:>2}:", c);
    for (std::size_t r = 0; r < joined.trees[c].size(); ++r) {
      fmt::print(
          " {}<-{}",
          joined.trees[c][r].up < 0 ? std::string("root") : std::to_string(joined.trees[c][r].up),
          r);
    }
    fmt::print("\n");
  }
  return {};
}

Command add_channels(CLI::App& app, bool rings) {
  const auto options = std::make_shared<ChannelsOptions>();
  CLI::App* const command =
      app.add_subcommand(rings ? "rings" : "trees", rings ? "ring channels, joined over machines"
                                                          : "tree channels, joined over machines");
  options->source.add_cluster_options(*command);
  add_format(*command, options->format, {"text", "json", "xml", "dot", "svg"});
  return {command, [options, rings] { return channels(rings, *options); }};
}

}  // namespace

Command add_rings(CLI::App& app) {
  return add_channels(app, true);
}

Command add_trees(CLI::App& app) {
  return add_channels(app, false);
}

}  // namespace tool
