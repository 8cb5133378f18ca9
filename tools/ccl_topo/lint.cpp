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
  std::vector<topo::Remark> remarks = topo::lint(machine.loaded);
  if (options.source.xml.empty()) {
    for (topo::Remark& remark : topo::lint_system()) remarks.push_back(std::move(remark));
  }
  if (options.format == "json") {
    auto all = nlohmann::json::array();
    for (const topo::Remark& remark : remarks) {
      all.push_back({{"problem", remark.problem}, {"advice", remark.advice}});
    }
    fmt::print("{}\n", all.dump(1));
    return {};
  }
  for (const topo::Remark& remark : remarks) {
    fmt::print("- {}\n    {}\n", remark.problem, remark.advice);
  }
  if (remarks.empty()) fmt::print("nothing to remark\n");
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
