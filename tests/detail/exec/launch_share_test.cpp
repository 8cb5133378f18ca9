#include <ccl/detail/exec/launch_share.hpp>

#include <limits>
#include <vector>

#include "support/catch.hpp"

using ccl::detail::LaunchShare;

namespace {

/// Tells which of the launches, given by their blocks, begin early.
std::vector<bool> early(LaunchShare share, const std::vector<int>& launches) {
  std::vector<bool> are;
  for (const int blocks : launches) are.push_back(share.take(blocks));
  return are;
}
using Early = std::vector<bool>;

}  // namespace

TEST_CASE("launches begin early as long as they fit into the share together") {
  CHECK(early({64, 0}, {32, 32, 32, 32, 32}) == Early{true, true, false, true, false});
  CHECK(early({64, 0}, {1, 60, 3, 1, 60, 3, 1}) ==
        Early{true, true, true, false, true, true, false});
  CHECK(early({32, 0}, {64, 1, 31, 32}) == Early{false, false, true, false});
}

TEST_CASE("without a share no launch begins early, and with the whole GPU each one does") {
  CHECK(early({}, {1, 1, 128}) == Early{false, false, false});
  CHECK(early(LaunchShare::whole_gpu(), {128, 128, 1, 128}) == Early{true, true, true, true});
}

TEST_CASE("counts of launches without end do not overflow") {
  LaunchShare share = LaunchShare::whole_gpu();
  share.held = std::numeric_limits<int>::max() - 100;
  CHECK(share.take(100));
  CHECK_FALSE(share.take(100));
  CHECK(share.held == 100);
}

TEST_CASE("a share that became smaller stops early launches until those in flight have ended") {
  LaunchShare share{64, 0};
  CHECK(share.take(32));
  CHECK(share.take(32));
  share.blocks = 40;
  CHECK_FALSE(share.take(8));
  CHECK(share.take(32));
}
