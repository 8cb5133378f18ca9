#include "transport/ib/link_ports.hpp"

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/fake_verbs.hpp"
#include "transport/ib/paths.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {
std::vector<IbPort> found() {
  auto ports = find_ib_ports();
  REQUIRE(ports.has_value());
  return ports->ports;
}
std::vector<std::string> names(const IbLinkPorts& chosen) {
  std::vector<std::string> all;
  for (const IbPort& port : chosen.ports) all.push_back(port.device->name());
  return all;
}
using Names = std::vector<std::string>;
}  // namespace

TEST_CASE("a connection takes the ports of its wires' NICs, then the others of the topology") {
  const test::Environment apart{"CCL_IB_MERGE_NICS", "0"};
  const test::FakeVerbs fabric{4};
  const auto ports = found();
  REQUIRE(ports.size() == 4);
  const EdgeNics nics{{"fake_0:1", "fake_1:1", "fake_3:1"}, {2, 1, 2}};
  const IbLinkPorts chosen = ports_of_link(ports, nics, 3);
  CHECK(names(chosen) == Names{"fake_3", "fake_1", "fake_0"});  // fake_2 is not in the topology
  CHECK(chosen.nic_of_wire == std::vector{ports[3].nic, ports[1].nic, ports[3].nic});
  CHECK(chosen.used == 2);  // fake_0 only stands by
  SECTION("a NIC that counts as one with others has the ports of all of them") {
    const IbLinkPorts both = ports_of_link(ports, {{"fake_1+fake_2"}, {0}}, 1);
    CHECK(both.nic_of_wire == std::vector{ports[1].nic});
    CHECK(names(both) == Names{"fake_1", "fake_2"});
    CHECK(both.ports[0].nic == both.ports[1].nic);
    CHECK(both.used == 2);
    const auto cards = std::vector{IbPortCard::of(both.ports[0]), IbPortCard::of(both.ports[1])};
    CHECK(choose_paths(0, {cards[0].nic, cards[0].nic}, cards, both.ports, {}).size() == 2);
  }
  SECTION("a wire whose NIC is not there has lost it") {
    const IbLinkPorts some = ports_of_link(ports, {{"fake_0:1", "gone:1"}, {1, 0, -1}}, 3);
    CHECK(names(some) == Names{"fake_0"});
    CHECK(some.nic_of_wire == std::vector{lost_nic, ports[0].nic, nic_in_turn});
    CHECK(some.used == 1);
  }
  SECTION("the second function of a card has port 2 in the topology, and port 1 by itself") {
    CHECK(names(ports_of_link(ports, {{"fake_2:2"}, {0}}, 1)) == Names{"fake_2"});
  }
  SECTION("in place of a lost NIC the nearest serve, and the others stand by") {
    const EdgeNics lost{
        {"gone:1", "fake_0:1", "fake_1:1", "fake_3:1"}, {0, 0, 0}, {}, -1, {0, 2, 1, 1}};
    const IbLinkPorts some = ports_of_link(ports, lost, 3);
    CHECK(names(some) == Names{"fake_1", "fake_3", "fake_0"});
    CHECK(some.nic_of_wire == std::vector{lost_nic, lost_nic, lost_nic});
    CHECK(some.used == 2);
  }
  SECTION("the others come by their distance") {
    EdgeNics near = nics;
    near.of_wire = {1, 1, 1};
    near.distances = {2, 0, 1};
    const IbLinkPorts sorted = ports_of_link(ports, near, 3);
    CHECK(names(sorted) == Names{"fake_1", "fake_3", "fake_0"});
    CHECK(sorted.ports[0].distance == 0);
    CHECK(sorted.ports[1].distance == 1);
    CHECK(sorted.ports[2].distance == 2);
  }
  SECTION("a topology of other NICs, or none, leaves all") {
    CHECK(ports_of_link(ports, {{"gone:1"}, {0}}, 1).ports.size() == 4);
    CHECK(ports_of_link(ports, {{"gone:1"}, {0}}, 1).nic_of_wire == std::vector{nic_in_turn});
    CHECK(ports_of_link(ports, {}, 2).ports.size() == 4);
    CHECK(ports_of_link(ports, {}, 2).nic_of_wire == std::vector{-1, -1});
  }
}

TEST_CASE("of more NICs than a connection takes, those of its wires come first") {
  const test::Environment apart{"CCL_IB_MERGE_NICS", "0"};
  const test::FakeVerbs fabric{32};
  const auto ports = found();
  REQUIRE(ports.size() == 32);
  EdgeNics nics;
  for (const IbPort& port : ports)
    nics.names.push_back(port.text().substr(0, port.text().find(' ')));
  nics.of_wire = {30, 17};
  const IbLinkPorts chosen = ports_of_link(ports, nics, 2);
  REQUIRE(chosen.ports.size() == max_ib_ports);
  CHECK(chosen.ports[0].device->name() == "fake_30");
  CHECK(chosen.ports[1].device->name() == "fake_17");
  // The nearest of the others stand by.
  nics.distances.assign(32, 1);
  nics.distances[20] = 0;
  CHECK(ports_of_link(ports, nics, 2).ports[2].device->name() == "fake_20");
  // More NICs than that leave the last wires to their turn.
  nics.of_wire = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const IbLinkPorts many = ports_of_link(ports, nics, 9);
  CHECK(many.ports.size() == max_ib_ports);
  CHECK(many.nic_of_wire[7] == ports[7].nic);
  CHECK(many.nic_of_wire[8] == -1);
}
