#include "nccl/config.hpp"

#include <cstdlib>

#include "support/catch.hpp"
#include "support/environment.hpp"

using namespace ccl;
using namespace ccl::test;
using detail::nccl::read_config;

TEST_CASE("programs for NCCL get the order of calls, unless the setting says otherwise") {
  const auto order = [](const ncclConfig_t* given, const Config* parent = nullptr) {
    const auto config = read_config(given, parent);
    REQUIRE(config);
    return config->implicit_launch_order;
  };
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  CHECK(order(nullptr) == true);
  CHECK(order(&given) == true);
  Config parent;
  parent.implicit_launch_order = false;
  CHECK(order(nullptr, &parent) == false);
  CHECK(order(&given, &parent) == true);
  const Environment off{"CCL_LAUNCH_ORDER_IMPLICIT", "0"};
  CHECK(order(nullptr) == false);
  CHECK(order(&given) == false);
}

TEST_CASE("a configuration of NCCL limits the blocks of a launch") {
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  CHECK_FALSE(read_config(&given)->max_channels);
  given.minCTAs = 2;
  given.maxCTAs = 64;
  CHECK(read_config(&given)->min_channels == 2);
  CHECK(read_config(&given)->max_channels == 64);
  given.magic = 1;
  CHECK(read_config(&given).error().code == Errc::invalid_argument);
}
