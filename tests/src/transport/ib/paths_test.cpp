#include "transport/ib/paths.hpp"

#include "support/catch.hpp"
#include "support/fake_verbs.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {
/// Returns ports of one end on the NICs of `nics`, named "fake_0 port 1" and so on.
std::vector<IbPort> ports(const std::vector<IbPort>& found, std::vector<int> nics) {
  std::vector<IbPort> some;
  for (std::size_t n = 0; n < nics.size(); ++n) {
    some.push_back(found[n]);
    some.back().nic = nics[n];
  }
  return some;
}
std::vector<IbPortCard> cards(const std::vector<IbPort>& of) {
  std::vector<IbPortCard> all;
  for (const IbPort& port : of) all.push_back(IbPortCard::of(port));
  return all;
}
IbBadPath bad(const std::string& sender, const std::string& receiver) {
  IbBadPath path{};
  sender.copy(path.sender, sizeof path.sender - 1);
  receiver.copy(path.receiver, sizeof path.receiver - 1);
  return path;
}
using Paths = std::vector<IbPath>;
}  // namespace

TEST_CASE("channels take NICs in turn, and all ports of a NIC side by side") {
  test::FakeVerbs fabric{4};
  auto found = find_ib_ports();
  REQUIRE(found.has_value());
  REQUIRE(found->ports.size() == 4);
  const auto one_nic = ports(found->ports, {0, 0}), two_nics = ports(found->ports, {0, 0, 1, 1});
  CHECK(choose_paths(0, {}, cards(one_nic), one_nic, {}) == Paths{{0, 0}, {1, 1}});
  CHECK(choose_paths(0, {}, cards(two_nics), two_nics, {}) == Paths{{0, 0}, {1, 1}});
  CHECK(choose_paths(1, {}, cards(two_nics), two_nics, {}) == Paths{{2, 2}, {3, 3}});
  CHECK(choose_paths(2, {}, cards(two_nics), two_nics, {}) == Paths{{0, 0}, {1, 1}});
  SECTION("an end with fewer ports uses each more often") {
    const auto one = ports(found->ports, {0});
    CHECK(choose_paths(0, {}, cards(one), one_nic, {}) == Paths{{0, 0}, {0, 1}});
    CHECK(choose_paths(1, {}, cards(two_nics), one, {}) == Paths{{2, 0}, {3, 0}});
  }
  SECTION("a bad path is left out; if all side by side are bad, others serve; else it stays") {
    const auto all = cards(one_nic);
    CHECK(choose_paths(0, {}, all, one_nic, {bad("fake_1 port 1", "fake_1 port 1")}) ==
          Paths{{0, 0}});
    const auto both = {bad("fake_0 port 1", "fake_0 port 1"),
                       bad("fake_1 port 1", "fake_1 port 1")};
    CHECK(choose_paths(0, {}, all, one_nic, both) == Paths{{0, 1}, {1, 0}});
    const auto one = ports(found->ports, {0});
    CHECK(choose_paths(0, {}, cards(one), one, both) == Paths{{0, 0}});
  }
  SECTION("each end has its NIC for the channel; one that is not there leaves the turn") {
    CHECK(choose_paths(0, {1, 0}, cards(two_nics), two_nics, {}) == Paths{{2, 0}, {3, 1}});
    CHECK(choose_paths(1, {0, -1}, cards(two_nics), two_nics, {}) == Paths{{0, 2}, {1, 3}});
    CHECK(choose_paths(1, {7, 7}, cards(two_nics), two_nics, {}) == Paths{{2, 2}, {3, 3}});
  }
  SECTION("a channel whose path fails goes to the nearest NICs, and avoids the ports of the path") {
    auto four = ports(found->ports, {0, 1, 2, 3});
    const auto failed = {bad("fake_0 port 1", "fake_0 port 1")};
    CHECK(choose_paths(0, {0, 0}, cards(four), four, failed) == Paths{{1, 1}, {2, 2}, {3, 3}});
    CHECK(choose_paths(5, {0, 0}, cards(four), four, failed) == Paths{{1, 1}, {2, 2}, {3, 3}});
    for (std::size_t n = 0; n < 4; ++n) four[n].distance = n == 3 ? 2 : n == 0 ? 0 : 1;
    CHECK(choose_paths(0, {0, 0}, cards(four), four, failed) == Paths{{1, 1}, {2, 2}});
    four[1].distance = 2;
    CHECK(choose_paths(0, {0, 0}, cards(four), four, failed) == Paths{{2, 2}});
  }
  SECTION("the nearest NICs share what a lost one would carry") {
    auto four = ports(found->ports, {0, 1, 2, 3});
    for (std::size_t n = 0; n < 4; ++n) four[n].distance = n == 1 ? 4 : 1;
    CHECK(choose_paths(0, {lost_nic, 1}, cards(four), four, {}) == Paths{{0, 1}, {2, 1}, {3, 1}});
    CHECK(choose_paths(0, {1, lost_nic}, cards(four), four, {}) == Paths{{1, 0}, {1, 2}, {1, 3}});
    CHECK(choose_paths(0, {lost_nic, lost_nic}, cards(four), four, {}) ==
          Paths{{0, 0}, {2, 2}, {3, 3}});
    const auto failed = {bad("fake_2 port 1", "fake_1 port 1")};
    CHECK(choose_paths(0, {lost_nic, 1}, cards(four), four, failed) == Paths{{0, 1}, {3, 1}});
  }
  SECTION("InfiniBand and Ethernet do not meet") {
    auto mixed = one_nic;
    mixed[1].infiniband = true;
    CHECK(choose_paths(0, {}, cards(mixed), one_nic, {}) == Paths{{0, 0}});
    for (IbPort& port : mixed) port.infiniband = true;
    CHECK(choose_paths(0, {}, cards(mixed), one_nic, {}).empty());
  }
}
