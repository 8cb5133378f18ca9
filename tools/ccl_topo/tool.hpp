#pragma once

#include <ccl/types/result.hpp>
#include <ccl/topo/path.hpp>
#include <ccl/topo/xml.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

#include <CLI/CLI.hpp>

/// Parts that the subcommands of ccl_topo share. Each subcommand has a file of its own.
namespace tool {

/// Which machine to look at; options of every subcommand that looks at one.
struct Source {
  std::string xml, hint;  // files; without `xml`, this machine
  int nodes = 1;          // such machines
  int ranks = 0;          // on CPUs, where there are no GPUs
  bool fabric = false;    // these are on one NVLink fabric, one machine
  bool no_p2p = false;
  bool time = false;  // tell how long each part takes
  std::string merge;  // which NICs count as one; empty: as the settings say of this machine
  bool lists_repairs =
      false;  // the subcommand does; else a line on stderr says that there are some

  void add_options(CLI::App& command);
};

/// A machine with its paths.
struct Machine {
  ccl::topo::LoadedGraph loaded;
  ccl::topo::PathRules rules;
  ccl::topo::Paths paths;
  int machines = 1;  // such machines

  const ccl::topo::Graph& graph() const { return loaded.graph; }
};
ccl::Result<Machine> look_at(const Source& source);

/// The node that a rank, "net0", a NIC's name or a label means.
ccl::Result<int> find_node(const ccl::topo::Graph& graph, const std::string& text);
/// What it could mean here: "ranks 0 1, NICs net0 (mlx5_0), and names such as CPU/0-0".
std::string nodes_of(const ccl::topo::Graph& graph);

/// Runs `part` and, where asked to, tells on stderr how long it took.
template <class F>
auto timed(const Source& source, const char* what, const F& part) {
  const auto began = std::chrono::steady_clock::now();
  auto result = part();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  if (source.time) fmt::print(stderr, "{}: {:.3f} ms\n", what, took.count());
  return result;
}

/// Adds --format with these values, the first of which is the default.
void add_format(CLI::App& command, std::string& format, const std::vector<std::string>& values);

/// A subcommand, and what runs when it was chosen. `run` owns its options.
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
