#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/detail/compose/default_plans.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include "support/catch.hpp"

using namespace ccl;

namespace {
struct Neighbors {
  static constexpr int wires = 2;
  static constexpr int max_wires(int) { return 1; }
};
}  // namespace

TEST_CASE("plans of Simple on a GPU have four groups a block in the same memory") {
  for (const int blocks : {1, 8, 16, 32, 33, 64, 128}) {
    INFO(blocks << " blocks");
    const Plan ring = detail::default_device_plan<Neighbors, Simple>(blocks);
    CHECK(ring.channels >= std::min(4 * blocks, 512));
    CHECK(ring.channels <= 512);
    CHECK(ring.channels * ring.slot_count * ring.slot_bytes == Index{32} << 20);
    CHECK(ring.slot_bytes >= 128 * Index{sizeof(Packet)});
    const Plan tree = detail::default_device_plan<Tree, Simple>(blocks);
    CHECK(tree.channels >= std::min(2 * blocks, 256));
    CHECK(tree.channels * tree.slot_count * tree.slot_bytes == Index{32} << 20);
    const Plan pairs = detail::default_device_plan<Pairwise, Simple>(blocks);
    CHECK(pairs.channels <= 128);
    CHECK(pairs.channels * pairs.slot_count * pairs.slot_bytes == Index{32} << 20);
  }
  CHECK(detail::default_device_plan<Neighbors, Simple>(32).slot_bytes == Index{64} << 10);
  CHECK(detail::default_device_plan<Neighbors, Simple>(128).slot_bytes == Index{16} << 10);
  CHECK(detail::default_device_plan<Neighbors, LL128>(8) ==
        detail::default_device_plan<Neighbors, LL128>(128));
}
