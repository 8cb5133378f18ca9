#include "transport/plug_in/context.hpp"

#include <memory>

#include "support/driver.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/lent.hpp"
#include "support/net_plug_in.hpp"
#include "transport/plug_in/presence.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail;

TEST_CASE("a communicator has one context for as long as it has connections") {
  const TestNet net{12};
  const Environment by{"CCL_NET_PLUGIN", net.path()};
  REQUIRE(net_plug_in_presence());
  const int begun = net.calls("init"), ended = net.calls("finalize");
  Lent one, other;
  {
    const auto first = NetContext::of(one.context), again = NetContext::of(one.context);
    REQUIRE(first);
    REQUIRE(again);
    CHECK(*first == *again);
    const auto second = NetContext::of(other.context);
    REQUIRE(second);
    CHECK(*first != *second);
    CHECK((*first)->devices().size() == 2);
    CHECK((*first)->devices()[1].name == "test1");
    CHECK(net.calls("init") == begun + 2);
  }
  CHECK(wait_until([&] { return net.calls("finalize") >= ended + 2 && net.objects() == 0; }));
  REQUIRE(NetContext::of(one.context));  // a new one
  CHECK(net.calls("init") == begun + 3);
}

TEST_CASE("a plug-in that does not begin ends creation at its limit") {
  const TestNet net{12};
  const Environment by{{{"CCL_NET_PLUGIN", net.path()}, {"CCL_INIT_TIMEOUT", "0.1"}}};
  REQUIRE(net_plug_in_presence());
  Lent lent;
  net.fail("init", 0, TestNet::held);
  const auto late = NetContext::of(lent.context);
  net.fail("init", 0, 0);
  REQUIRE_FALSE(late);
  CHECK(late.error().code == Errc::timed_out);
  CHECK(mentions(late.error().what, "init of the network plug-in Test"));
  const int ended = net.calls("finalize");
  CHECK(wait_until([&] { return net.calls("finalize") > ended || net.objects() == 0; }));
}

TEST_CASE("a forked child leaves its parent's context alone") {
  const TestNet net{12};
  const Environment by{"CCL_NET_PLUGIN", net.path()};
  REQUIRE(net_plug_in_presence());
  // Threads end those of other cases, also one that begins late.
  REQUIRE(wait_until([&] { return net.calls("finalize") == net.calls("init"); }));
  Lent lent;
  auto context = NetContext::of(lent.context);
  REQUIRE(context);
  const int ended = net.calls("finalize");
  CHECK(alone_with_child(
            [&](int) -> std::string {
              if ((*context)->is_ours()) return "the child takes it for its own";
              context = fail(Errc::internal, "");
              return net.calls("finalize") == ended ? "" : "it was ended";
            },
            [](int, pid_t) { return std::string{}; }) == "");
  CHECK((*context)->is_ours());
}

TEST_CASE("channels take the devices of their NICs, or those nearest to the GPU") {
  const auto device = [](const char* name, const char* path) {
    NetDevice one;
    one.name = name;
    one.pci_path = path;
    return one;
  };
  const std::vector<NetDevice> devices{
      device("a", "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"),
      device("b", "/sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0"),
      device("c", "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0")};
  using Devices = std::vector<int>;
  CHECK(choose_net_devices(devices, {}, 4, "", 1) == Devices{1, 2, 0, 1});
  CHECK(choose_net_devices(devices, {}, 3, "/sys/devices/pci0000:80/0000:80:01.0/0000:82:00.0",
                           1) == Devices{2, 2, 2});
  CHECK(choose_net_devices(devices, {}, 3, "/sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0",
                           0) == Devices{0, 1, 0});
  EdgeNics nics;
  nics.names = {"c:1", "a:1+b:1", "d"};
  nics.of_wire = {0, 1, 1, 1, -1, 2, 7};
  CHECK(choose_net_devices(devices, nics, 8, "", 0) == Devices{2, 0, 1, 0, 1, 2, 0, 1});
}

TEST_CASE("channels take the port of their NIC, of devices of one name") {
  std::vector<NetDevice> devices(3);
  for (int n = 0; n < 2; ++n) {
    devices[std::size_t(n)].name = "mlx5_0";
    devices[std::size_t(n)].port = n + 1;
  }
  devices[2].name = "mlx5_1";
  devices[2].port = 1;
  using Devices = std::vector<int>;
  EdgeNics nics;
  nics.names = {"mlx5_0:1", "mlx5_0:2", "mlx5_1:2"};  // the last is the card's second function
  nics.of_wire = {0, 1, 0, 1, 2};
  CHECK(choose_net_devices(devices, nics, 5, "", 0) == Devices{0, 1, 0, 1, 2});
  nics.names = {"mlx5_0+mlx5_1", "mlx5_0:3"};  // a port that no device has
  nics.of_wire = {0, 0, 0, 1, 1};
  CHECK(choose_net_devices(devices, nics, 5, "", 0) == Devices{0, 1, 2, 0, 1});
}
