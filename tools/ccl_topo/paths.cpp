#include <ccl/topo/draw.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string_view>

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
  // A text of a pair each: at the limit, 4 million pairs of some 100 bytes.
  constexpr std::size_t most = 2048;
  if (const std::size_t ends = topo::ends_of(graph).size(); ends > most) {
    return ccl::fail(
        ccl::Errc::not_supported,
        fmt::format("{} GPUs and NICs have too many paths to list (`paths` takes at most {}, "
                    "{} pairs); ask `explain` for two of them",
                    ends, most, most * most));
  }
  const topo::Paths paths = paths_of(machine, options.source, graph.of(topo::NodeType::net));
  const auto write = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  };
  if (options.format == "json") {
    topo::write_json(graph, &paths, write);
  } else if (options.format == "xml") {
    topo::write_paths_xml(graph, paths, write);
  } else if (options.format == "dot") {
    fmt::print("{}", topo::paths_to_dot(graph, paths));
  } else if (options.format == "svg") {
    fmt::print("{}", topo::paths_to_svg(graph, paths));
  } else if (options.format == "matrix") {
    fmt::print("{}", topo::print_matrix(graph, paths));
  } else {
    topo::write_paths(graph, paths, write);
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
