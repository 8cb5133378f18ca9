#include "transport/ib/verbs/port_choice.hpp"

#include <array>
#include <cstring>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include <arpa/inet.h>

using namespace ccl;
using namespace ccl::detail;

namespace {

ibv_gid_entry entry(unsigned index, const char* address, ibv_gid_type type) {
  ibv_gid_entry e{};
  e.gid_index = index;
  e.port_num = 1;
  e.gid_type = type;
  in_addr four{};
  if (::inet_pton(AF_INET, address, &four) == 1) {
    e.gid.raw[10] = e.gid.raw[11] = 0xff;
    std::memcpy(e.gid.raw + 12, &four, 4);
  } else {
    (void)::inet_pton(AF_INET6, address, e.gid.raw);
  }
  return e;
}

/// GID table of a RoCE port with both address families.
const std::array table{
    entry(0, "fe80::5054:ff:fe12:3456", IBV_GID_TYPE_ROCE_V1),
    entry(1, "fe80::5054:ff:fe12:3456", IBV_GID_TYPE_ROCE_V2),
    entry(2, "10.1.0.7", IBV_GID_TYPE_ROCE_V1),
    entry(3, "10.1.0.7", IBV_GID_TYPE_ROCE_V2),
    entry(4, "2001:db8::7", IBV_GID_TYPE_ROCE_V2),
    entry(5, "192.168.9.7", IBV_GID_TYPE_ROCE_V2),
    entry(6, "fe80::", IBV_GID_TYPE_ROCE_V2),  // unused
};

int chosen(const GidPreference& wish) {
  const auto gid = choose_gid(table, wish);
  return gid ? int(gid->gid_index) : -1;
}

}  // namespace

TEST_CASE("lists of devices, in NCCL's syntax") {
  struct Row {
    const char* list;
    const char* device;
    int port;
    bool accepts;
  };
  for (const Row& row : {
           Row{"", "mlx5_0", 1, true},
           Row{"mlx5", "mlx5_0", 2, true},
           Row{"mlx5_1", "mlx5_10", 1, true},  // prefixes
           Row{"=mlx5_1", "mlx5_10", 1, false},
           Row{"=mlx5_1", "mlx5_1", 2, true},
           Row{"mlx5_0:1,mlx5_2:2", "mlx5_0", 1, true},
           Row{"mlx5_0:1,mlx5_2:2", "mlx5_0", 2, false},
           Row{"mlx5_0:1,mlx5_2:2", "mlx5_2", 2, true},
           Row{"^mlx5_3", "mlx5_3", 1, false},
           Row{"^mlx5_3", "mlx5_30", 1, false},
           Row{"^=mlx5_3", "mlx5_30", 1, true},
           Row{"^mlx5_3:2,rxe", "mlx5_3", 1, true},
           Row{"^mlx5_3:2,rxe", "rxe0", 1, false},
       }) {
    INFO(row.list << " and " << row.device << ":" << row.port);
    const auto list = HcaList::parse(row.list);
    REQUIRE(list.has_value());
    CHECK(list->accepts(row.device, row.port) == row.accepts);
  }
  for (const char* bad : {"mlx5_0:", "mlx5_0:x", "mlx5_0:0", "mlx5_0:1:2"}) {
    const auto list = HcaList::parse(bad);
    REQUIRE(!list.has_value());
    CHECK(list.error().code == Errc::bad_setting);
  }
}

TEST_CASE("the GID of a RoCE port") {
  CHECK(chosen({}) == 3);
  CHECK(chosen({-1, 1, false, ""}) == 2);
  CHECK(chosen({-1, 2, true, ""}) == 4);  // not the link-local one
  CHECK(chosen({-1, 1, true, ""}) == 0);  // the previous RoCE version
  CHECK(chosen({-1, 2, false, "192.168.0.0/16"}) == 5);
  CHECK(chosen({-1, 2, false, "2001:db8::/32"}) == 4);
  CHECK(chosen({-1, 2, false, "10.1.0.7/32"}) == 3);
  CHECK(chosen({2, 2, true, "192.168.0.0/16"}) == 2);  // an index overrules the rest
}

TEST_CASE("what cannot be chosen is refused, with what there is") {
  const auto error = [](const GidPreference& wish) {
    const auto gid = choose_gid(table, wish);
    REQUIRE(!gid.has_value());
    return gid.error();
  };
  CHECK(error({9, 2, false, ""}).what.find("3: 10.1.0.7 (RoCE v2)") != std::string::npos);
  CHECK(error({6, 2, false, ""}).code == Errc::bad_setting);
  CHECK(error({-1, 2, false, "172.16.0.0/12"}).code == Errc::no_transport);
  for (const char* bad : {"10.1.0.0", "10.1.0.0/33", "10.1.0.0/", "ten/8", "::1/129"}) {
    CHECK(error({-1, 2, false, bad}).code == Errc::bad_setting);
  }
  const ccl::test::Environment theirs{"NCCL_IB_GID_INDEX", "9"};
  CHECK(error({9, 2, false, ""}).what.starts_with("NCCL_IB_GID_INDEX=9 is not in use"));
  CHECK(choose_gid({}, {}).error().what.find("there are none") != std::string::npos);
}
