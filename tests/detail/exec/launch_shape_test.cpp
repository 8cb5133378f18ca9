#include <ccl/detail/exec/launch_shape.hpp>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

TEST_CASE("up to four warps share a block, and larger groups have one each while there are some") {
  CHECK(launch_shape(Index{8}, 32, 512, 32).blocks == 2);
  CHECK(launch_shape(Index{8}, 128, 512, 32).blocks == 8);
  CHECK(launch_shape(Index{128}, 128, 512, 32).blocks == 32);
  CHECK(launch_shape(Index{128}, 128, 512, 32).channels == 128);
}

TEST_CASE("groups that find no place in a block are left out") {
  CHECK(launch_shape(Index{300}, 128, 512, 32).channels == 128);
  CHECK(launch_shape(Index{300}, 128, 256, 32).channels == 64);
  CHECK(launch_shape(Index{300}, 32, 512, 2).channels == 32);
}

TEST_CASE("a message has as many channels as its bytes are worth") {
  CHECK(channel_worth(32, 0) == 1024);
  CHECK(channel_worth(128, 0) == 4096);
  CHECK(channel_worth(128, 8192) == 8192);
  const auto channels = [](Index bytes) {
    return launch_shape(bytes, 8, 0, 128, 512, 32).channels;
  };
  CHECK(channels(0) == 1);
  CHECK(channels(4096) == 1);
  CHECK(channels(4097) == 2);
  CHECK(channels(1 << 20) == 8);
}
