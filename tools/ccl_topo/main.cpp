// Shows the topology of a machine, the paths and channels that ccl selects, and its problems.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tool.hpp"

namespace {

int run(int argc, char** argv) {
  CLI::App app{"What ccl sees of a machine and makes of it", "ccl_topo"};
  app.require_subcommand(1);
  const std::vector<tool::Command> commands{
      tool::add_show(app), tool::add_paths(app),   tool::add_rings(app),   tool::add_trees(app),
      tool::add_lint(app), tool::add_explain(app), tool::add_simulate(app)};
  // CLI11 would report a missing subcommand for any unknown word.
  const auto is_named = [&](const tool::Command& command) {
    return command.app->get_name() == argv[1];
  };
  const bool names_none = argc == 1;
  if (names_none ||
      (argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), is_named))) {
    const std::string given =
        names_none ? "a subcommand is missing" : fmt::format("there is no {}", argv[1]);
    fmt::print(stderr, "ccl_topo: {}; take one of", given);
    for (const tool::Command& command : commands) {
      fmt::print(stderr, " {}", command.app->get_name());
    }
    fmt::print(stderr, "{}\n", names_none ? ", each of which has its own --help" : "");
    return 1;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  for (const tool::Command& command : commands) {
    if (!command.app->parsed()) continue;
    const auto done = command.run();
    if (done) continue;
    fmt::print(stderr, "ccl_topo: {}\n", done.error().message());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {  // such as bad_alloc
    fmt::print(stderr, "ccl_topo: {}\n", error.what());
    return 1;
  }
}
