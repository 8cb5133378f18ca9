#include <ccl/topo/lint.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>

#include "tool.hpp"

namespace tool {
namespace {

namespace topo = ccl::topo;

struct LintOptions {
  Source source;
  std::string format;
};

ccl::Result<void> lint(const LintOptions& options) {
  Source source = options.source;
  source.lists_repairs = true;
  CCL_TRY(const Machine machine, look_at(source));
  std::vector<topo::Finding> findings = topo::lint(machine.loaded, machine.rules);
  if (options.source.xml.empty()) {
    for (topo::Finding& finding : topo::lint_system()) findings.push_back(std::move(finding));
  }
  if (options.format == "json") {
    auto all = nlohmann::json::array();
    for (const topo::Finding& finding : findings) {
      all.push_back({{"problem", finding.problem}, {"advice", finding.advice}});
    }
    fmt::print("{}\n", all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
    return {};
  }
  for (const topo::Finding& finding : findings) {
    fmt::print("- {}\n    {}\n", finding.problem, finding.advice);
  }
  if (findings.empty()) fmt::print("nothing to remark\n");
  return {};
}

}  // namespace

Command add_lint(CLI::App& app) {
  const auto options = std::make_shared<LintOptions>();
  CLI::App* const command =
      app.add_subcommand("lint", "what is wrong with the machine, and what to do");
  options->source.add_options(*command);
  add_format(*command, options->format, {"text", "json"});
  return {command, [options] { return lint(*options); }};
}

}  // namespace tool
