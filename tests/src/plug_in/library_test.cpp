#include "plug_in/library.hpp"

#include <fmt/format.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/log_of.hpp"
#include "support/net_plug_in.hpp"

using namespace ccl::detail;
using namespace ccl::test;

namespace {
constexpr std::array<std::string_view, 2> symbols{"ncclNetPlugin_v12", "ncclNetPlugin_v11"};
}

TEST_CASE("libraries are offered in the order of the list, until one is taken") {
  const std::string v9 = TestNet{9}.path(), v11 = TestNet{11}.path(), v12 = TestNet{12}.path();
  std::vector<std::string> offered;
  std::string missing;
  const bool taken = each_plug_in(
      "net", fmt::format("no-such,{},,{},{}", v9, v11, v12), symbols,
      [&](const PlugInSymbol& found) {
        CHECK(found.object != nullptr);
        offered.push_back(fmt::format("{} {}", found.symbol, found.library));
        return found.symbol == symbols[0];
      },
      &missing);
  CHECK(taken);
  CHECK(offered == std::vector{"ncclNetPlugin_v11 " + v11, "ncclNetPlugin_v12 " + v12});
  CHECK(mentions(missing, "net plug-in no-such: cannot be loaded (libnccl-net-no-such.so"));
  CHECK(mentions(missing, (v9 + ": it has none of ncclNetPlugin_v12, ncclNetPlugin_v11").c_str()));
}

TEST_CASE("none is no library, and the default one is tried without a setting") {
  const auto never = [](const PlugInSymbol&) { return true; };
  std::string missing;
  CHECK_FALSE(each_plug_in("net", "none", symbols, never, &missing));
  CHECK(missing == "");
  CHECK_FALSE(each_plug_in("nosuchkind", "", symbols, never, &missing));
  CHECK(mentions(missing, "libnccl-nosuchkind.so: cannot be loaded"));
  CHECK(find_plug_in("nosuchkind", "", symbols).object == nullptr);
  CHECK(find_plug_in("net", TestNet{11}.path(), symbols).symbol == symbols[1]);
}

TEST_CASE("a library with plug-ins of the other kind of a setting is no warning") {
  constexpr std::array<std::string_view, 1> others{"ncclCollNetPlugin_v12"};
  const std::string v12 = TestNet{12}.path();
  const auto log_with = [&](std::span<const std::string_view> kin) {
    return log_of([&] {
      std::string missing;
      CHECK_FALSE(each_plug_in(
          "net", v12, others, [](const auto&) { return true; }, &missing, kin));
      CHECK(mentions(missing, "it has none of ncclCollNetPlugin_v12"));
    });
  };
  CHECK(mentions(log_with({}), "WARN INIT net plug-in"));
  const std::string quiet = log_with(symbols);
  CHECK(mentions(quiet, "INFO INIT net plug-in"));
  CHECK_FALSE(mentions(quiet, "WARN"));
}
