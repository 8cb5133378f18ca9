#include <ccl/transport/ib.hpp>
#include <ccl/transport/socket.hpp>

#include <cstdlib>

#include "support/catch.hpp"

using namespace ccl;

namespace {
PeerInfo rank_with(int rank, int kinds, int absence) {
  PeerInfo info;
  info.rank = rank;
  info.ib_kinds = kinds;
  info.ib_absence = absence;
  return info;
}
bool contains(const std::string& text, const char* part) {
  return text.find(part) != text.npos;
}
std::string refusal(const PeerInfo& a, const PeerInfo& b) {
  const auto can = IbTransport::can_connect(a, b);
  if (can) return "";
  CHECK(can.error().code == Errc::no_transport);
  return can.error().what;
}
}  // namespace

TEST_CASE("ranks with ports of one kind are connected, others get the reason") {
  const PeerInfo ib = rank_with(0, 1, 0), roce = rank_with(1, 2, 0), both = rank_with(2, 3, 0);
  CHECK(refusal(ib, ib) == "");
  CHECK(refusal(roce, both) == "");
  CHECK(refusal(ib, both) == "");
  CHECK(contains(refusal(ib, roce), "has only InfiniBand"));
  for (int absence = 1; absence <= 7; ++absence) {
    const std::string why = refusal(ib, rank_with(7, 0, absence));
    CHECK(contains(why, "rank 7"));
    CHECK(!contains(why, "nothing"));
  }
}

TEST_CASE("CCL_NET leaves one network") {
  const PeerInfo roce = rank_with(1, 2, 0);
  REQUIRE(::setenv("CCL_NET", "Socket", 1) == 0);
  CHECK(contains(refusal(roce, roce), "CCL_NET"));
  REQUIRE(::setenv("CCL_NET", "IB", 1) == 0);
  CHECK(refusal(roce, roce) == "");
  CHECK(!SocketTransport::can_connect(roce, roce).has_value());
  ::unsetenv("CCL_NET");
  CHECK(SocketTransport::can_connect(roce, roce).has_value());
}
