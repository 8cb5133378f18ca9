#include <ccl/topo/discover.hpp>
#include <ccl/topo/xml.hpp>

#include <cstdlib>
#include <cstring>

#include "support/catch.hpp"
#include "transport/ib/verbs/verbs.hpp"
#include <endian.h>

namespace {

namespace topo = ccl::topo;

/// Three devices that are not there: NDR InfiniBand, dual-port EDR RoCE with one port down, and one
/// that cannot be opened. Only what detection calls is in the table.
class FakeDevices {
 public:
  FakeDevices() {
    const char* names[] = {"mlx5_0", "mlx5_1", "mlx5_2"};
    for (int n = 0; n < 3; ++n) {
      std::strcpy(devices[n].name, names[n]);
      contexts[n].device = &devices[n];
    }
    opened = 0;
    table_.get_device_list = [](int* count) {
      *count = 3;
      static ibv_device* list[4];
      for (int n = 0; n < 3; ++n) list[n] = &devices[n];
      return list;
    };
    table_.free_device_list = [](ibv_device**) {};
    table_.open_device = [](ibv_device* device) -> ibv_context* {
      if (device == &devices[2]) return nullptr;
      ++opened;
      return &contexts[device - devices];
    };
    table_.close_device = [](ibv_context*) { return --opened < 0 ? 1 : 0; };
    table_.query_device = [](ibv_context* context, ibv_device_attr* attributes) {
      const bool second = context == &contexts[1];
      attributes->phys_port_cnt = second ? 2 : 1;
      attributes->sys_image_guid = htobe64(second ? 0xbULL : 0xaULL);
      attributes->max_qp = second ? 500 : 1000;
      return 0;
    };
    table_.query_port = [](ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* to) {
      auto* const attributes = reinterpret_cast<ibv_port_attr*>(to);
      const bool second = context == &contexts[1];
      attributes->state = second && port == 1 ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
      attributes->active_width = 2;                  // 4 lanes
      attributes->active_speed = second ? 32 : 128;  // EDR, NDR
      attributes->link_layer = second ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
      return 0;
    };
    ccl::detail::use_verbs(&table_);
  }
  ~FakeDevices() { ccl::detail::use_verbs(nullptr); }

  static inline ibv_device devices[3];
  static inline ibv_context contexts[3];
  static inline int opened = 0;

 private:
  ccl::detail::Verbs table_{};
};

}  // namespace

TEST_CASE("libibverbs tells ports that are up, their speed, guid and kind") {
  const FakeDevices fake;
  const auto seen = topo::verbs_nics();
  REQUIRE(seen);
  CHECK(seen->asked);
  REQUIRE(seen->nics.size() == 2);
  CHECK(seen->nics[0].name == "mlx5_0");
  CHECK(seen->nics[0].mbps == 400000);
  CHECK(seen->nics[0].guid == 0xa);
  CHECK(seen->nics[0].max_connections == 1000);
  CHECK(seen->nics[0].infiniband);
  CHECK(seen->nics[1].name == "mlx5_1");
  CHECK(seen->nics[1].port == 2);
  CHECK(seen->nics[1].mbps == 100000);
  CHECK_FALSE(seen->nics[1].infiniband);
  CHECK(seen->why.find("mlx5_2 cannot be opened") == 0);
  CHECK(FakeDevices::opened == 0);  // all are closed again
}

TEST_CASE("a machine's NETs are what libibverbs tells of") {
  const FakeDevices fake;
  topo::DiscoverOptions options;
  options.sys = "/nowhere";
  options.proc = "/nowhere";
  options.gpus.emplace();
  const auto file = topo::discover(options);
  REQUIRE(file);
  const auto loaded = topo::to_graph(*file);
  REQUIRE(loaded);
  const auto nets = loaded->graph.of(topo::NodeType::net);
  REQUIRE(nets.size() == 2);
  CHECK(loaded->graph.nodes[nets[0]].net.bw == 50);
  CHECK(loaded->graph.nodes[nets[1]].net.bw == 12.5F);
}

TEST_CASE("CCL_IB_HCA and CCL_IB_DISABLE leave ports out, and bad values are refused") {
  const FakeDevices fake;
  ::setenv("CCL_IB_HCA", "=mlx5_1", 1);
  auto seen = topo::verbs_nics();
  REQUIRE(seen);
  REQUIRE(seen->nics.size() == 1);
  CHECK(seen->nics[0].name == "mlx5_1");
  ::setenv("CCL_IB_HCA", "mlx5_1:1x", 1);
  CHECK_FALSE(topo::verbs_nics());
  ::unsetenv("CCL_IB_HCA");
  ::setenv("CCL_IB_DISABLE", "1", 1);
  seen = topo::verbs_nics();
  ::unsetenv("CCL_IB_DISABLE");
  REQUIRE(seen);
  CHECK(seen->nics.empty());
  CHECK(seen->why.find("CCL_IB_DISABLE") == 0);
}
