#include <ccl/topo/draw.hpp>

#include <fmt/format.h>

#include <memory>

#include "tool.hpp"

namespace tool {
namespace {

namespace topo = ccl::topo;

struct PathsOptions {
  Source source;
  std::string format;
};

ccl::Result<void> paths(const PathsOptions& options) {
  CCL_TRY(const Machine machine, look_at(options.source));
  const topo::Graph& graph = machine.graph();
  if (options.format == "json") {
    fmt::print("{}", topo::to_json(graph, &machine.paths));
  } else if (options.format == "xml") {
    fmt::print("{}", topo::print_xml(topo::paths_to_xml(graph, machine.paths)));
  } else if (options.format == "dot") {
    fmt::print("{}", topo::paths_to_dot(graph, machine.paths));
  } else if (options.format == "svg") {
    fmt::print("{}", topo::paths_to_svg(graph, machine.paths));
  } else if (options.format == "matrix") {
    fmt::print("{}", topo::print_matrix(graph, machine.paths));
  } else {
    fmt::print("{}", topo::print_paths(graph, machine.paths));
  }
  return {};
}

}  // namespace

Command add_paths(CLI::App& app) {
  const auto options = std::make_shared<PathsOptions>();
  CLI::App* const command = app.add_subcommand("paths", "best paths between GPUs and NICs");
  options->source.add_options(*command);
  add_format(*command, options->format, {"text", "matrix", "json", "xml", "dot", "svg"});
  return {command, [options] { return paths(*options); }};
}

}  // namespace tool
