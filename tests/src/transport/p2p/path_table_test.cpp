#include "transport/p2p/path_table.hpp"

#include <set>

#include "support/catch.hpp"

using namespace ccl::detail;

namespace {
/// Ranks a, b, ... of one host that all reach each other over NVLink.
PathTable joined(int places) {
  PathTable table{places};
  for (int a = 0; a < places; ++a) {
    for (int b = 0; b < places; ++b) table.at(a, b) = {PathFault::none, true, true, false, false};
  }
  return table;
}
void part(PathTable& table, int a, int b, PathFault fault = PathFault::none) {
  table.at(a, b).nvlink = table.at(b, a).nvlink = false;
  table.at(a, b).fault = fault;
}
}  // namespace

TEST_CASE("the report of a rank fits into a byte") {
  for (int fault = 0; fault <= int(PathFault::slow); ++fault) {
    for (int bits = 0; bits < 16; ++bits) {
      const PathReport said{PathFault(fault), (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0,
                            (bits & 8) != 0};
      CHECK(said.byte() != 0xff);
      const PathReport back = PathReport::of(said.byte());
      CHECK(back.fault == said.fault);
      CHECK(back.nvlink == said.nvlink);
      CHECK(back.relays == said.relays);
      CHECK(back.untried == said.untried);
      CHECK(back.on_loan == said.on_loan);
    }
  }
}

TEST_CASE("a fault that one end has seen is one of both, and both name the same") {
  PathTable table = joined(3);
  table.at(2, 1).fault = PathFault::lost;
  CHECK(table.fault(1, 2) == PathFault::lost);
  CHECK(table.fault(2, 1) == PathFault::lost);
  table.at(1, 2).fault = PathFault::slow;
  CHECK(table.fault(1, 2) == table.fault(2, 1));
  CHECK(table.fault(0, 1) == PathFault::none);
}

TEST_CASE("a path is tried if one end does not know it and none is against it") {
  PathTable table = joined(2);
  CHECK_FALSE(table.to_try(0, 1));
  table.at(0, 1).untried = true;
  CHECK(table.to_try(0, 1));
  CHECK(table.to_try(1, 0));
  table.at(1, 0).fault = PathFault::refused;
  CHECK_FALSE(table.to_try(0, 1));
  CHECK_FALSE(table.to_try(1, 0));
}

TEST_CASE("a GPU is between two only where both have NVLink to it and none to each other") {
  PathTable table = joined(4);
  CHECK(table.relay(0, 1) == -1);
  part(table, 0, 1);  // PCIe: works, but NVLink twice is better
  CHECK(table.relay(0, 1) >= 2);
  CHECK(table.relay(0, 1) == table.relay(1, 0));
  CHECK(table.relay(0, 2) == -1);
  part(table, 0, 2);
  part(table, 1, 3);
  CHECK(table.relay(0, 1) == -1);  // 2 has it to 1, 3 to 0 only
  CHECK(table.relay(0, 2) == 3);
}

TEST_CASE("a broken NVLink is gone round, over paths that work and ranks that may") {
  PathTable table = joined(3);
  table.at(1, 0).fault = PathFault::corrupt;
  CHECK(table.relay(0, 1) == 2);
  CHECK(table.relay(1, 0) == 2);
  table.at(1, 2).relays = false;  // CCL_NVB_DISABLE, or no memory there
  CHECK(table.relay(0, 1) == -1);
  CHECK(table.relay(1, 0) == -1);
  table.at(1, 2).relays = true;
  table.at(2, 0).fault = PathFault::slow;
  CHECK(table.relay(0, 1) == -1);
}

TEST_CASE("the rank of a GPU in between lends memory to those that do not see it") {
  PathTable table = joined(4);
  for (int m = 0; m < 4; ++m) CHECK_FALSE(table.lends(m));
  table.at(0, 2).on_loan = table.at(0, 3).on_loan = true;
  for (int m = 0; m < 4; ++m) CHECK_FALSE(table.lends(m));  // no pair needs one
  part(table, 0, 1);
  const int between = table.relay(0, 1);
  for (int m = 0; m < 4; ++m) CHECK(table.lends(m) == (m == between));
  table.at(0, between).on_loan = false;
  CHECK_FALSE(table.lends(between));
  table.at(1, between).on_loan = true;
  CHECK(table.lends(between));
}

TEST_CASE("the pairs of the halves of a machine are spread over what is between them") {
  // Eight GPUs in two cliques of four, each joined to the one in its place in the other.
  PathTable table = joined(8);
  for (int a = 0; a < 4; ++a) {
    for (int b = 4; b < 8; ++b) {
      if (b != a + 4) part(table, a, b);
    }
  }
  std::set<int> used;
  for (int a = 0; a < 4; ++a) {
    for (int b = 4; b < 8; ++b) {
      const int between = table.relay(a, b);
      if (b == a + 4) {
        CHECK(between == -1);
      } else {
        CHECK((between == a + 4 || between == b - 4));
        used.insert(between);
      }
    }
  }
  CHECK(used.size() > 4);
}
