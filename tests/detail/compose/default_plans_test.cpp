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

TEST_CASE("two CPU ranks of a host have longer slots than more of them") {
  const auto plan_of = [](const detail::Plans& plans, Medium medium) {
    return plans.by_medium[std::size_t(medium)];
  };
  for (const int neighbors : {1, 2, 3, 4, 64}) {
    INFO(neighbors << " ranks");
    const bool few = neighbors <= 2;
    const detail::Plans simple = detail::default_host_plans<Simple>(neighbors);
    const Plan host = plan_of(simple, Medium::host_memory);
    CHECK(host.channels == 1);
    CHECK(host.slot_count == 8);
    CHECK(host.slot_bytes == Index{few ? 128 : 64} << 10);
    const Plan network = plan_of(simple, Medium::network);
    CHECK(network.slot_count == 4);
    CHECK(network.slot_bytes == Index{few ? 512 : 256} << 10);
    const detail::Plans flags = detail::default_host_plans<LL128>(neighbors);
    CHECK(plan_of(flags, Medium::host_memory).slot_bytes == Index{64} << 10);
  }
}

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

namespace {
template <class Algo, class Proto>
Plan between_hosts(const detail::NetworkFacts& network, int blocks = 32,
                   int compute_capability = 90) {
  const detail::HostFacts machine{370.8, true, compute_capability};
  return detail::default_device_plans<Algo, Proto>(network, machine, blocks)
      .by_medium[std::size_t(Medium::network)];
}
}  // namespace

TEST_CASE("rings between hosts have the channels that keep up with their NICs over RDMA") {
  using detail::NetworkFacts;
  const NetworkFacts tcp{false, 384, 8}, slow{true, 8 * 12, 8}, fast{true, 8 * 48, 8};
  const Plan by_tcp = between_hosts<Neighbors, Simple>(tcp);
  CHECK(by_tcp.channels == 8);
  // A block moves 22 GB/s of Simple, so that one is enough for a NIC of 100 Gb/s.
  CHECK(between_hosts<Neighbors, Simple>(slow) == by_tcp);
  CHECK(between_hosts<Neighbors, Simple>({true, 0, 8}) == by_tcp);  // unknown
  const Plan by_rdma = between_hosts<Neighbors, Simple>(fast);
  CHECK(by_rdma.channels == 32);
  CHECK(between_hosts<Neighbors, Simple>({true, 8 * 24, 8}).channels == 16);
  CHECK(by_rdma.channels * by_rdma.slot_bytes == by_tcp.channels * by_tcp.slot_bytes);
  // A block of Ampere moves 12 GB/s.
  CHECK(between_hosts<Neighbors, Simple>(fast, 32, 80).channels == 32);
  CHECK(between_hosts<Neighbors, Simple>(fast, 16, 80).channels == 16);
  CHECK(between_hosts<Neighbors, Simple>(fast, 4, 80).channels == 8);
  // Four warps share a block.
  CHECK(between_hosts<Neighbors, LL128>(tcp).channels == 8);
  CHECK(between_hosts<Neighbors, LL128>(fast).channels == 32);
  CHECK(between_hosts<Neighbors, LL128>(fast, 4).channels == 16);
  // Two trees for each ring.
  CHECK(between_hosts<Tree, Simple>(slow).channels == 16);
  CHECK(between_hosts<Tree, Simple>(fast).channels == 32);
  // A lone ring has eight channels anyway.
  CHECK(between_hosts<Neighbors, Simple>({true, 48, 1}).channels == 8);
  // Messages have channels by peers.
  CHECK(between_hosts<Pairwise, Simple>(fast) == between_hosts<Pairwise, Simple>(tcp));
}
