// Settings of RDMA connections, and the devices and ports that they name, on emulated devices.
#include <ccl/transport/ib.hpp>

#include <algorithm>

#include "support/fake_verbs.hpp"
#include "support/two_ranks.hpp"
#include "transport/ib/link.hpp"
#include "transport/ib/verbs/device.hpp"
#include "transport/ib/verbs/queue_pair.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("settings reach the queue pairs of both ends") {
  FakeVerbs fabric{2};
  fabric.mtus = {IBV_MTU_1024, IBV_MTU_2048};
  fabric.readdress(9, 5);
  const Environment environment{{{"CCL_IB_TC", "106"},
                                 {"CCL_IB_SL", "3"},
                                 {"CCL_IB_TIMEOUT", "17"},
                                 {"CCL_IB_RETRY_CNT", "5"},
                                 {"CCL_IB_PKEY", "2"},
                                 {"CCL_IB_HCA", "=fake_1"}}};
  check_fine(two_ranks({1, 2, 128}, 5));
  REQUIRE(fabric.connected.size() >= 4);  // two connections of two ends
  for (const QpSettings& qp : fabric.connected) {
    CHECK(qp.traffic_class == 106);
    CHECK(qp.service_level == 3);
    CHECK(qp.timeout == 17);
    CHECK(qp.retry_count == 5);
    CHECK(qp.pkey_index == 2);
    CHECK(qp.mtu == IBV_MTU_2048);
    CHECK(qp.gid_index == 5);
    CHECK(int(qp.to.raw[15]) == 2);  // fake_1's
  }
}

TEST_CASE("the traffic class of a communicator comes before that of the settings") {
  FakeVerbs fabric{1};
  const Environment environment{"CCL_IB_TC", "106"};
  check_fine(connected_ranks(
      {1, 2, 128}, [](int, auto&, Lent&) { return std::string{}; },
      [](TransportContext& context) { context.traffic_class = 8; }));
  REQUIRE(fabric.connected.size() >= 4);
  for (const QpSettings& qp : fabric.connected) CHECK(qp.traffic_class == 8);
}

TEST_CASE("recreated queue pairs go to the addresses of then") {
  FakeVerbs fabric{1};
  bool broken = false;
  check_fine(two_ranks({1, 4, 4096}, 200, [&](int rank) {
    if (rank != 0) return;
    fabric.readdress(8, 3);
    broken = fabric.break_one();
  }));
  REQUIRE(broken);
  REQUIRE(fabric.connected.size() > 4);
  CHECK(int(fabric.connected.front().to.raw[13]) == 9);
  CHECK(fabric.connected.front().gid_index == 0);
  CHECK(int(fabric.connected.back().to.raw[13]) == 8);
  CHECK(fabric.connected.back().gid_index == 3);
}

TEST_CASE("data is ordered as the bus likes it unless a setting says otherwise; boards never are") {
  FakeVerbs fabric{1};
  const bool relaxed = GENERATE(true, false);
  const Environment environment{{{"CCL_IB_PCI_RELAXED_ORDERING", relaxed ? "1" : "0"}}};
  check_fine(two_ranks({1, 2, 128}, 5));
  const auto count = [&](bool with) {
    return std::count_if(fabric.accesses.begin(), fabric.accesses.end(), [&](unsigned access) {
      return (access & IBV_ACCESS_REMOTE_WRITE) != 0 &&
             ((access & IBV_ACCESS_RELAXED_ORDERING) != 0) == with;
    });
  };
  CHECK(count(true) == (relaxed ? 2 : 0));   // slots of two receivers
  CHECK(count(false) == (relaxed ? 2 : 4));  // boards of two senders
}

TEST_CASE("small steps are sent inline, and free slots are reported together") {
  FakeVerbs fabric{1};
  check_fine(two_ranks({1, 8, 128}, 400));
  CHECK(fabric.faults.writes == 800);
  CHECK(fabric.faults.board_writes < 800);
  CHECK(fabric.faults.inline_writes > fabric.faults.board_writes);
}

TEST_CASE("memory is registered once, however often it is asked for") {
  FakeVerbs fabric{1};
  {
    auto found = detail::find_ib_ports();
    REQUIRE(found.has_value());
    REQUIRE(found->ports.size() == 1);
    detail::IbDevice& device = *found->ports[0].device;
    alignas(4096) static std::byte memory[4 * 4096];
    auto all = device.memory(memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    auto part = device.memory(memory + 5000, 100, IBV_ACCESS_LOCAL_WRITE);
    REQUIRE(all.has_value());
    CHECK(part->get() == all->get());
    CHECK(fabric.regions_made == 1);
    auto other = device.memory(memory, 100, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(other->get() != all->get());
    CHECK(fabric.regions_made == 2);
    all->reset();
    part->reset();
    CHECK(device.memory(memory, 100, IBV_ACCESS_LOCAL_WRITE).has_value());
    CHECK(fabric.regions_made == 3);
  }
  CHECK(fabric.held() == 0);
}

TEST_CASE("a GID index that some ports have leaves out the others; one that none has is an error") {
  FakeVerbs fabric{2};
  fabric.gid_indexes = {0, 3};
  {
    const Environment environment{{{"CCL_IB_GID_INDEX", "3"}}};
    const auto found = detail::find_ib_ports();
    REQUIRE(found.has_value());
    REQUIRE(found->ports.size() == 1);
    CHECK(found->ports[0].text() == "fake_1 port 1");
    CHECK(found->ports[0].gid_index == 3);
    CHECK(contains(found->left_out, "fake_0 port 1: CCL_IB_GID_INDEX=3 is not in use"));
    CHECK(detail::ib_presence()->kinds == 2);
    const auto names = detail::ib_port_names();
    REQUIRE(names->size() == 1);
    CHECK(names->front().device == "fake_1");
    CHECK_FALSE(names->front().infiniband);
  }
  const Environment environment{{{"CCL_IB_GID_INDEX", "7"}}};
  const auto found = detail::find_ib_ports();
  REQUIRE(!found.has_value());
  CHECK(found.error().code == Errc::bad_setting);
  CHECK(contains(found.error().what, "fake_1 port 1: CCL_IB_GID_INDEX=7 is not in use"));
}

TEST_CASE("a GID index is for RoCE ports, and an InfiniBand port without it is used") {
  FakeVerbs fabric{1, true};
  const Environment environment{{{"NCCL_IB_GID_INDEX", "3"}}};
  const auto found = detail::find_ib_ports();
  if (!found) FAIL(found.error().what);
  REQUIRE(found->ports.size() == 1);
  CHECK(found->ports[0].infiniband);
  CHECK(found->ports[0].gid_index == 0);
  CHECK(found->left_out.empty());
  CHECK(detail::ib_presence()->kinds == 1);
}

TEST_CASE("why there is no port") {
  FakeVerbs fabric{1};
  CHECK(detail::ib_presence()->kinds == 2);
  {
    const Environment environment{{{"CCL_IB_DISABLE", "1"}}};
    CHECK(detail::ib_presence()->absence == detail::IbAbsence::disabled);
  }
  {
    const Environment environment{{{"CCL_IB_HCA", "^fake"}}};
    CHECK(detail::ib_presence()->absence == detail::IbAbsence::not_chosen);
  }
  {
    const Environment environment{{{"CCL_IB_ADDR_RANGE", "10.8.0.0/16"}}};
    CHECK(detail::ib_presence()->absence == detail::IbAbsence::no_gid);
  }
  fabric.take_down(0);
  CHECK(detail::ib_presence()->absence == detail::IbAbsence::not_active);
}
