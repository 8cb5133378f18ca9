#include <ccl/topo/explain.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>

#include "tool.hpp"

namespace tool {
namespace {

struct ExplainOptions {
  Source source;
  std::string format;
  std::vector<std::string> ends;
};

ccl::Result<void> explain(const ExplainOptions& options) {
  CCL_TRY(const Machine machine, look_at(options.source));
  if (options.ends.size() != 2) {
    return ccl::fail(ccl::Errc::invalid_argument,
                     fmt::format("explain takes two nodes ({} given); here there are {}",
                                 options.ends.empty()       ? "none"
                                 : options.ends.size() == 1 ? "one"
                                                            : "more",
                                 nodes_of(machine.graph())));
  }
  CCL_TRY(const int a, find_node(machine.graph(), options.ends[0]));
  CCL_TRY(const int b, find_node(machine.graph(), options.ends[1]));
  const ccl::topo::Paths paths = paths_of(machine, options.source, {a, b});
  const auto lines = ccl::topo::explain(machine.graph(), paths, machine.rules, a, b);
  if (options.format == "json") {
    fmt::print("{}\n", nlohmann::json(lines).dump(1));
    return {};
  }
  for (const std::string& line : lines) fmt::print("{}\n", line);
  return {};
}

}  // namespace

Command add_explain(CLI::App& app) {
  const auto options = std::make_shared<ExplainOptions>();
  CLI::App* const command = app.add_subcommand("explain", "why two nodes talk the way they do");
  options->source.add_options(*command);
  add_format(*command, options->format, {"text", "json"});
  // The number of ends is checked when the machine is known, so that the error can list its nodes.
  command->add_option("ends", options->ends, "two of: rank, netN, NIC, a name that `show` prints");
  return {command, [options] { return explain(*options); }};
}

}  // namespace tool
