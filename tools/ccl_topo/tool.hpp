#pragma once

#include <ccl/sim/cluster.hpp>
#include <ccl/topo/configured.hpp>
#include <ccl/topo/path.hpp>
#include <ccl/topo/xml.hpp>
#include <ccl/types/result.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

/// Parts that the subcommands of ccl_topo share. Each subcommand has a file of its own.
namespace tool {

/// Options that select the machine, common to the subcommands that read one.
struct Source {
  std::string xml, hint;  // file names; without `xml`, this machine
  int nodes = 1;          // number of such machines
  int ranks = 0;          // CPU ranks, if there are no GPUs
  bool fabric = false;    // true: the machines share one NVLink fabric
  bool no_p2p = false;
  bool time = false;  // true: prints the time of each part
  std::string merge;  // level at which NICs are fused; empty: by the settings of this machine
  // True: the subcommand joins the machines as a communicator does; false: machines of one fabric
  // are one graph.
  bool joins_hosts = false;
  int domain_nodes = ccl::sim::Cluster::by_file;  // of a subcommand with `joins_hosts`
  bool lists_repairs =
      false;  // true: the subcommand lists repairs; false: a line on stderr counts them

  void add_options(CLI::App& command);
  /// Adds those of a subcommand with `joins_hosts`, too.
  void add_cluster_options(CLI::App& command);
};

/// Machine with the rules of the settings.
struct Machine {
  ccl::topo::LoadedGraph loaded;
  ccl::topo::PathRules rules;
  ccl::topo::NetRules nets;
  std::optional<ccl::topo::XmlFile> graphs;  // of CCL_GRAPH_FILE
  int machines = 1;                          // number of such machines
  int domain_nodes = ccl::sim::Cluster::by_file;

  const ccl::topo::Graph& graph() const { return loaded.graph; }
  ccl::Result<ccl::sim::Cluster> cluster() const {
    return ccl::sim::Cluster::of(graph(), machines, rules, nets, domain_nodes,
                                 graphs ? &*graphs : nullptr);
  }
};
/// Fails if a setting has a value that a communicator refuses, and warns where one does.
ccl::Result<Machine> look_at(const Source& source);
/// Returns the paths of the machine; of NICs, those in `whole` and all of a machine that is not
/// very large have paths from all nodes.
ccl::topo::Paths paths_of(const Machine& machine, const Source& source,
                          const std::vector<int>& whole);

/// Returns the node with this name: a rank, "net0", the name of a NIC, also with its port
/// ("mlx5_0:2"), or a label. Fails if several NICs have that name.
ccl::Result<int> find_node(const ccl::topo::Graph& graph, const std::string& text);
/// Returns the valid names: "ranks 0 1, NICs net0 (mlx5_0), and names such as CPU/0-0".
std::string nodes_of(const ccl::topo::Graph& graph);

/// Runs `part` and, if requested, prints its time on stderr.
template <class F>
auto timed(const Source& source, const char* what, const F& part) {
  const auto began = std::chrono::steady_clock::now();
  auto result = part();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  if (source.time) fmt::print(stderr, "{}: {:.3f} ms\n", what, took.count());
  return result;
}

/// Adds --format with these values; the first is the default.
void add_format(CLI::App& command, std::string& format, const std::vector<std::string>& values);

/// Subcommand, and the function that runs it. `run` owns its options.
struct Command {
  CLI::App* app;
  std::function<ccl::Result<void>()> run;
};
Command add_show(CLI::App& app);
Command add_paths(CLI::App& app);
Command add_rings(CLI::App& app);
Command add_trees(CLI::App& app);
Command add_lint(CLI::App& app);
Command add_explain(CLI::App& app);
Command add_simulate(CLI::App& app);

}  // namespace tool
