#include <ccl/algo/cost.hpp>
#include <ccl/choose/candidates.hpp>

#include <set>
#include <type_traits>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

TEST_CASE("algorithms say how far and how much they carry") {
  STATIC_REQUIRE(cost_terms_of<AllReduce, Ring>(4).hops == 6);
  STATIC_REQUIRE(cost_terms_of<AllReduce, Ring>(4).volume == 1.5);
  STATIC_REQUIRE(cost_terms_of<AllGather, Ring>(4).hops == 3);
  STATIC_REQUIRE(cost_terms_of<Broadcast, Ring>(4).volume == 1);
  STATIC_REQUIRE(cost_terms_of<AllReduce, OneShot>(8).hops == 1);
  STATIC_REQUIRE(cost_terms_of<AllReduce, OneShot>(8).volume == 7);
  STATIC_REQUIRE(cost_terms_of<AllReduce, TwoShot>(8).volume == 1.75);
  STATIC_REQUIRE(cost_terms_of<AllReduce, Doubling>(8).hops == 3);
  STATIC_REQUIRE(cost_terms_of<AllReduce, Doubling>(7).hops == 4);
  STATIC_REQUIRE(cost_terms_of<AllGather, Bruck>(5).hops == 3);
  STATIC_REQUIRE(cost_terms_of<AllReduce, Tree>(5).hops == 6);
  struct Silent {};
  STATIC_REQUIRE(cost_terms_of<AllReduce, Silent>(3).hops == 4);
  // Two bits and a little for three shares; to a partner and back besides.
  CHECK(cost_terms_of<ReduceScatter, Halving>(4).hops == Approx(2.3));
  CHECK(cost_terms_of<ReduceScatter, Halving>(5).hops == Approx(4.4));
  CHECK(cost_terms_of<ReduceScatter, Halving>(4).volume == Approx(1.05 * 0.75));
  // Two blocks of eight.
  CHECK(cost_terms_of<ReduceScatter, Halving>(16).hops == Approx(4 + 1.5));
}

TEST_CASE("between CPU ranks on hosts of their own, halving up to some 100 KiB, then the ring") {
  const auto us = [](const CostTerms& cost_terms, double bytes) {
    return predict_us(rates(Path::net, Mover::wires, Packing::simple), cost_terms, bytes, 1);
  };
  // benchmarks/network/over_tcp.sh among 4: 45 us against Pat's 61 and Ring's 65; 82 ms against 90
  // and 80.
  const CostTerms halving = cost_terms_of<ReduceScatter, Halving>(4),
                  ring = cost_terms_of<ReduceScatter, Ring>(4);
  for (const double bytes : {8, 512, 32768, 131072}) {
    CHECK(us(halving, bytes) < us(cost_terms_of<ReduceScatter, Pat>(4), bytes));
    CHECK(us(halving, bytes) < us(ring, bytes));
  }
  CHECK(us(halving, 16 << 20) > us(ring, 16 << 20));
}

TEST_CASE("algorithms say what of it crosses between hosts") {
  STATIC_REQUIRE(inter_node_volume<AllGather, Ring>(8, 2) ==
                 cost_terms_of<AllGather, Ring>(8).volume);
  // One rank on each host: as much as a rank's own.
  CHECK(inter_node_volume<AllGather, Bruck>(4, 4) == Approx(1.05 * 0.75));
  // Two on each of four: a share in the first round, four in the next, eight in the last.
  CHECK(inter_node_volume<AllGather, Bruck>(8, 4) == Approx(1.05 * 13 / 8));
  STATIC_REQUIRE(inter_node_volume<AllToAll, Pairwise>(8, 2) ==
                 inter_node_volume<AllToAll, Pairwise>(4, 2));
  STATIC_REQUIRE(inter_node_fraction<AllReduce, Ring>(8, 2) == 0.25);
  // The sums of a host leave it once, however many ranks it has.
  CHECK(inter_node_volume<ReduceScatter, Halving>(8, 2) == Approx(1.05 / 2));
  CHECK(inter_node_volume<ReduceScatter, Halving>(4, 4) ==
        cost_terms_of<ReduceScatter, Halving>(4).volume);
  CHECK(inter_node_volume<ReduceScatter, Halving>(6, 3) ==
        cost_terms_of<ReduceScatter, Halving>(6).volume);
  CHECK(inter_node_fraction<ReduceScatter, Halving>(8, 4) == Approx(2 / 3.0));
  CHECK(inter_node_volume<AllGather, Doubling>(8, 2) == Approx(1.05 / 2));
  CHECK(inter_node_volume<AllReduce, Doubling>(8, 2) ==
        cost_terms_of<AllReduce, Doubling>(8).volume);
  CHECK(inter_node_fraction<AllGather, Doubling>(8, 2) == Approx(1 / 3.0));
  CHECK(inter_node_fraction<AllReduce, Doubling>(8, 2) == 1);
  STATIC_REQUIRE(inter_node_fraction<AllGather, Pat>(4, 4) == 1);
  STATIC_REQUIRE(inter_node_fraction<AllGather, Pat>(16, 4) == 0.75);
  struct Silent {};
  STATIC_REQUIRE(inter_node_volume<AllReduce, Silent>(4, 2) == 2);
  STATIC_REQUIRE(inter_node_fraction<AllReduce, Silent>(4, 2) == 1);
}

TEST_CASE("only what keeps one order says so") {
  STATIC_REQUIRE(order_of<AllReduce, OneShot>() == SumOrder::by_rank);
  STATIC_REQUIRE(order_of<AllReduce, TwoShot>() == SumOrder::by_rank);
  STATIC_REQUIRE(order_of<AllReduce, Ring>() == SumOrder::varies);
  STATIC_REQUIRE(order_of<AllReduce, Tree>() == SumOrder::varies);
  STATIC_REQUIRE(order_of<AllReduce, OneTree>() == SumOrder::tree);
  STATIC_REQUIRE(order_of<ReduceScatter, Ring>() == SumOrder::ring);
  STATIC_REQUIRE(order_of<ReduceScatter, OrderedChain>() == SumOrder::ordered_chain);
  struct Silent {};
  STATIC_REQUIRE(order_of<AllReduce, Silent>() == SumOrder::varies);
}

TEST_CASE("time grows with hops and bytes, and shrinks with blocks up to what the path carries") {
  const Rates r{1, 2, 100, 10};
  CHECK(predict_us(r, {3, 0.5}, 0, 128) == Approx(7));
  CHECK(predict_us(r, {3, 0.5}, 1e6, 128) == Approx(7 + 5));
  CHECK(predict_us(r, {3, 0.5}, 1e6, 5) == Approx(7 + 10));
  CHECK(predict_us({1, 2, 100, 0}, {3, 0.5}, 1e6, 1) == Approx(7 + 5));
}

TEST_CASE("the model meets what was measured on 4 H200, within a third") {
  const auto us = [](Packing packing, Mover mover, const CostTerms& cost_terms, double bytes) {
    return predict_us(rates(Path::nvlink, mover, packing), cost_terms, bytes, 128);
  };
  // benchmarks/results, h200x4 kernels
  const struct {
    double measured, predicted;
  } cases[] = {
      {1.76, us(Packing::ll128, Mover::peers, cost_terms_of<AllReduce, OneShot>(4), 256)},
      {2.57, us(Packing::ll128, Mover::peers, cost_terms_of<AllReduce, OneShot>(4), 65536)},
      {7.09, us(Packing::ll128, Mover::peers, cost_terms_of<AllReduce, TwoShot>(4), 1 << 20)},
      {21.9, us(Packing::ll128, Mover::peers, cost_terms_of<AllReduce, TwoShot>(4), 4 << 20)},
      {12.6, us(Packing::ll128, Mover::peers, cost_terms_of<AllGather, OneShot>(4), 4 << 20)},
      {9.33, us(Packing::ll128, Mover::wires, cost_terms_of<AllReduce, Ring>(4), 1 << 20)},
      {27.7, us(Packing::ll128, Mover::wires, cost_terms_of<AllReduce, Ring>(4), 4 << 20)},
      {6.46, us(Packing::ll, Mover::wires, cost_terms_of<AllReduce, Ring>(4), 16384)},
      {81.8, us(Packing::simple, Mover::wires, cost_terms_of<AllReduce, Ring>(4), 16 << 20)},
      {4400, us(Packing::simple, Mover::wires, cost_terms_of<AllReduce, Ring>(4), 1 << 30)},
      {131, us(Packing::ll128, Mover::wires, cost_terms_of<AllReduce, Tree>(4), 16 << 20)},
      // benchmarks/results, h200x4, OneShot and Direct between pairs
      {303.6, us(Packing::ll128, Mover::peers, cost_terms_of<SendRecv, OneShot>(4), 64 << 20)},
      {191.6, us(Packing::simple, Mover::peers, cost_terms_of<SendRecv, Direct>(4), 64 << 20)},
      {39.7, us(Packing::ll128, Mover::peers, cost_terms_of<SendRecv, OneShot>(4), 8 << 20)},
      {18.5, us(Packing::ll128, Mover::peers, cost_terms_of<Gather, OneShot>(4), 8 << 20)},
      {40.5, us(Packing::simple, Mover::peers, cost_terms_of<Gather, Direct>(4), 16 << 20)},
      {41.5, us(Packing::simple, Mover::peers, cost_terms_of<Scatter, Direct>(4), 16 << 20)},
      {446, us(Packing::simple, Mover::wires, cost_terms_of<AllReduce, Tree>(4), 64 << 20)},
      {67.5,
       us(Packing::simple, Mover::engines, cost_terms_of<AllGather, WindowCopies>(4), 16 << 20)},
      {559,
       us(Packing::simple, Mover::engines, cost_terms_of<AllToAll, WindowCopies>(4), 256 << 20)},
      {712,
       us(Packing::simple, Mover::engines, cost_terms_of<SendRecv, WindowCopies>(4), 256 << 20)},
  };
  for (const auto& one : cases) {
    INFO(one.measured);
    CHECK(one.predicted == Approx(one.measured).epsilon(0.33));
  }
}

TEST_CASE("on 4 H200 an all-gather on 32 blocks goes by the ring where that was faster") {
  const auto us = [](Mover mover, const CostTerms& cost_terms, double bytes, int blocks) {
    return predict_us(rates(Path::nvlink, mover, Packing::simple), cost_terms, bytes, blocks);
  };
  const CostTerms ring = cost_terms_of<AllGather, Ring>(4),
                  direct = cost_terms_of<AllGather, Direct>(4);
  // In clusters (docs/validation/calls.md)
  const struct {
    double bytes, ring, direct;
  } measured[] = {{64 << 20, 160.8, 165.8}, {256 << 20, 582.7, 601.6}, {1 << 30, 2243, 2354}};
  for (const auto& one : measured) {
    INFO(one.bytes);
    CHECK(us(Mover::wires, ring, one.bytes, 32) == Approx(one.ring).epsilon(0.06));
    CHECK(us(Mover::peers, direct, one.bytes, 32) == Approx(one.direct).epsilon(0.12));
    CHECK(us(Mover::wires, ring, one.bytes, 32) < us(Mover::peers, direct, one.bytes, 32));
  }
  // 16 MiB: 45.2 us by OneShot, 46.9 by Direct.
  const Rates ll128 = rates(Path::nvlink, Mover::peers, Packing::ll128);
  const double one_shot = predict_us(ll128, cost_terms_of<AllGather, OneShot>(4), 16 << 20, 32);
  CHECK(one_shot == Approx(45.2).epsilon(0.02));
  CHECK(one_shot < us(Mover::peers, direct, 16 << 20, 32));
  CHECK(one_shot < us(Mover::wires, ring, 16 << 20, 32));
  // 16 MiB on 48 blocks: 46.9 us by Direct, 47.6 by the ring.
  CHECK(us(Mover::peers, direct, 16 << 20, 48) < us(Mover::wires, ring, 16 << 20, 48));
}

TEST_CASE("on 4 H200 a reduce-scatter on 32 blocks goes by the ring where that is faster") {
  const auto us = [](Mover mover, const CostTerms& cost_terms, double bytes) {
    return predict_us(rates(Path::nvlink, mover, Packing::simple), cost_terms, bytes, 32);
  };
  // An all-reduce by the ring, which is a reduce-scatter and an all-gather, takes 1128 and 4441 us
  // for 256 MiB and 1 GiB; the reduce-scatter by Direct 614.6 and 2432.
  for (const double bytes : {256 << 20, 1 << 30}) {
    CHECK(us(Mover::wires, cost_terms_of<ReduceScatter, Ring>(4), bytes) <
          us(Mover::peers, cost_terms_of<ReduceScatter, Direct>(4), bytes));
  }
  CHECK(us(Mover::wires, cost_terms_of<AllReduce, Ring>(4), 256 << 20) ==
        Approx(1128).epsilon(0.06));
}

TEST_CASE("on 4 H200 sums in rank order reach a root by Direct where that was faster") {
  // ccl_perf reduce --deterministic, 32 blocks
  const Rates simple = rates(Path::nvlink, Mover::peers, Packing::simple);
  const Rates ll128 = rates(Path::nvlink, Mover::peers, Packing::ll128);
  const CostTerms direct = cost_terms_of<Reduce, Direct>(4),
                  two = cost_terms_of<Reduce, TwoShot>(4);
  const struct {
    double bytes, measured;
  } cases[] = {{4 << 20, 32.8}, {16 << 20, 72.3}, {64 << 20, 228}, {1 << 30, 3364}};
  for (const auto& one : cases) {
    CHECK(predict_us(simple, direct, one.bytes, 32) == Approx(one.measured).epsilon(0.05));
  }
  // By TwoShot with LL128 20.1 and 80.3 us.
  CHECK(predict_us(ll128, two, 4 << 20, 32) < predict_us(simple, direct, 4 << 20, 32));
  CHECK(predict_us(simple, direct, 16 << 20, 32) < predict_us(ll128, two, 16 << 20, 32));
}

TEST_CASE("what goes without flags is faster where it was: two-shot on 8 H200, by a bare kernel") {
  const auto us = [](Packing packing, Index bytes) {
    const CostTerms cost_terms = cost_terms_of<AllReduce, TwoShot>(8);
    return predict_us(rates(Path::nvlink, Mover::peers, packing), cost_terms, double(bytes), 128);
  };
  const struct {
    Index bytes;
    double ll128, sentinel;
  } measured[] = {{256 << 10, 4.88, 4.86},
                  {1 << 20, 8.84, 8.73},
                  {4 << 20, 26.9, 25.2},
                  {8 << 20, 52.0, 47.3},
                  {16 << 20, 102, 94.0}};
  for (const auto& one : measured) {
    INFO(one.bytes);
    CHECK(us(Packing::ll128, one.bytes) == Approx(one.ll128).epsilon(0.1));
    CHECK(us(Packing::sentinel, one.bytes) == Approx(one.sentinel).epsilon(0.1));
    if (one.bytes >= 1 << 20) {
      CHECK(us(Packing::sentinel, one.bytes) < us(Packing::ll128, one.bytes));
    }
  }
}

TEST_CASE("messages between pairs of GPUs go by OneShot where they are small, by Direct beyond") {
  const auto faster = [](const CostTerms& one_shot, const CostTerms& direct, double bytes) {
    return predict_us(rates(Path::nvlink, Mover::peers, Packing::ll128), one_shot, bytes, 128) <
           predict_us(rates(Path::nvlink, Mover::peers, Packing::simple), direct, bytes, 128);
  };
  // Measured on 4 H200: 7.5 us against 10.0, 39.7 against 30.2; 18.5 against 23.8; 45.2 against
  // 41.5.
  CHECK(faster(cost_terms_of<SendRecv, OneShot>(4), cost_terms_of<SendRecv, Direct>(4), 1 << 20));
  CHECK_FALSE(
      faster(cost_terms_of<SendRecv, OneShot>(4), cost_terms_of<SendRecv, Direct>(4), 8 << 20));
  CHECK(faster(cost_terms_of<Gather, OneShot>(4), cost_terms_of<Gather, Direct>(4), 8 << 20));
  CHECK_FALSE(
      faster(cost_terms_of<Scatter, OneShot>(4), cost_terms_of<Scatter, Direct>(4), 16 << 20));
}

TEST_CASE("on 2 H200 the model prefers what was the faster one there") {
  const auto us = [](Packing packing, Mover mover, const CostTerms& cost_terms, double bytes) {
    return predict_us(rates(Path::nvlink, mover, packing), cost_terms, bytes, 128);
  };
  constexpr auto simple = Packing::simple, ll = Packing::ll, ll128 = Packing::ll128;
  constexpr auto wires = Mover::wires, peers = Mover::peers;
  // benchmarks/results, h200x2: 5.40 us against 1.9, 76.9 against 50, 282 against 190, and
  // all-gathers of 30.1 against 29.3, 102.1 against 100.1, 1491 against 1481.
  CHECK(us(ll128, peers, cost_terms_of<SendRecv, OneShot>(2), 256) <
        us(ll, wires, cost_terms_of<SendRecv, Pairwise>(2), 256));
  for (const double bytes : {16 << 20, 64 << 20, 1 << 30}) {
    CHECK(us(simple, peers, cost_terms_of<SendRecv, Direct>(2), bytes) <
          us(simple, wires, cost_terms_of<SendRecv, Pairwise>(2), bytes));
    CHECK(us(simple, peers, cost_terms_of<AllGather, Direct>(2), bytes) <
          us(simple, wires, cost_terms_of<AllGather, Ring>(2), bytes));
    CHECK(us(simple, wires, cost_terms_of<AllGather, Ring>(2), bytes) ==
          Approx(bytes / 2 / 364e3 + 6).epsilon(0.02));
  }
  // All-reduces of 8 MiB: 30.8 us against 33.2; all-gathers of 8 MiB: 17.2 against 18.1.
  CHECK(us(simple, wires, cost_terms_of<AllReduce, Ring>(2), 8 << 20) <
        us(ll128, wires, cost_terms_of<AllReduce, Ring>(2), 8 << 20));
  CHECK(us(ll128, peers, cost_terms_of<AllGather, OneShot>(2), 8 << 20) <
        us(ll128, wires, cost_terms_of<AllGather, Ring>(2), 8 << 20));
  // 4 H200: 42.5 us against 43.9; 152 against 147, 583 against 563.
  CHECK(us(simple, peers, cost_terms_of<AllGather, Direct>(4), 16 << 20) <
        us(simple, wires, cost_terms_of<AllGather, Ring>(4), 16 << 20));
  for (const double bytes : {64 << 20, 256 << 20}) {
    CHECK(us(simple, peers, cost_terms_of<AllGather, Direct>(4), bytes) >
          us(simple, wires, cost_terms_of<AllGather, Ring>(4), bytes));
  }
}

TEST_CASE(
    "on 2 H200 messages of a root go by the ring where that was faster, on 32 blocks and on all") {
  constexpr double mib = 1 << 20;
  const struct {
    double bytes;
    int blocks;
    double broadcast_ring, broadcast_direct, reduce_ring, reduce_direct;
  } measured[] = {
      // docs/validation/performance_h200x2.md
      {8 * mib, 32, 27.9, 35.7, 27.8, 30.5},        {32 * mib, 32, 99.5, 104.8, 97.1, 99.0},
      {128 * mib, 32, 376.2, 377.5, 373.1, 370.8},  {512 * mib, 32, 1467.5, 1469, 1462.7, 1458.3},
      {8 * mib, 128, 26.8, 43.1, 26.7, 32.5},       {32 * mib, 128, 96.7, 115.5, 95.8, 101.8},
      {128 * mib, 128, 372.8, 393.5, 371.2, 375.3},
  };
  const Rates wires = rates(Path::nvlink, Mover::wires, Packing::simple);
  const Rates peers = rates(Path::nvlink, Mover::peers, Packing::simple);
  const auto compare = [&](const CostTerms& ring, const CostTerms& direct, const auto& one,
                           double ring_us, double direct_us) {
    const double by_ring = predict_us(wires, ring, one.bytes, one.blocks);
    const double by_direct = predict_us(peers, direct, one.bytes, one.blocks);
    INFO(one.bytes << " on " << one.blocks);
    CHECK(by_ring == Approx(ring_us).epsilon(0.11));
    CHECK(by_direct == Approx(direct_us).epsilon(0.12));
    if (std::abs(ring_us - direct_us) > 0.01 * ring_us) {
      CHECK((by_ring < by_direct) == (ring_us < direct_us));
    }
  };
  for (const auto& one : measured) {
    compare(cost_terms_of<Broadcast, Ring>(2), cost_terms_of<Broadcast, Direct>(2), one,
            one.broadcast_ring, one.broadcast_direct);
    compare(cost_terms_of<Reduce, Ring>(2), cost_terms_of<Reduce, Direct>(2), one, one.reduce_ring,
            one.reduce_direct);
  }
}

TEST_CASE("on 2 H200 messages of some MiB go by packets as long as those were faster") {
  constexpr double mib = 1 << 20;
  const Rates ll128 = rates(Path::nvlink, Mover::peers, Packing::ll128);
  const Rates simple = rates(Path::nvlink, Mover::peers, Packing::simple);
  const struct {
    double bytes, one_shot, other;
  } broadcasts[] = {{mib, 6.01, 5.15}, {4 * mib, 18.22, 14.43}}, pairs[] = {{2 * mib, 9.80, 14.0},
                                                                            {4 * mib, 17.5, 19.7},
                                                                            {8 * mib, 35.7, 31.2},
                                                                            {16 * mib, 69.8, 53.7}};
  for (const auto& one : broadcasts) {  // the other: TwoShot
    INFO(one.bytes);
    const double us = predict_us(ll128, cost_terms_of<Broadcast, TwoShot>(2), one.bytes, 32);
    CHECK(us == Approx(one.other).epsilon(0.05));
    CHECK(us < predict_us(ll128, cost_terms_of<Broadcast, OneShot>(2), one.bytes, 32));
  }
  for (const auto& one : pairs) {  // the other: Direct
    INFO(one.bytes);
    const double by_packets = predict_us(ll128, cost_terms_of<SendRecv, OneShot>(2), one.bytes, 32);
    const double directly = predict_us(simple, cost_terms_of<SendRecv, Direct>(2), one.bytes, 32);
    CHECK(by_packets == Approx(one.one_shot).epsilon(0.06));
    CHECK(directly == Approx(one.other).epsilon(0.03));
    CHECK((by_packets < directly) == (one.one_shot < one.other));
  }
}

template <class List>
constexpr bool has_one_shot = false;
template <class... Cs>
constexpr bool has_one_shot<Candidates<Cs...>> =
    (std::is_base_of_v<OneShot, typename Cs::Algorithm> || ...);

TEST_CASE("Auto has an algorithm of one hop for every operation") {
  STATIC_REQUIRE(has_one_shot<DefaultCandidates<AllReduce>::List>);
  STATIC_REQUIRE(has_one_shot<DefaultCandidates<AllGather>::List>);
  STATIC_REQUIRE(has_one_shot<DefaultCandidates<ReduceScatter>::List>);
  STATIC_REQUIRE(has_one_shot<DefaultCandidates<Broadcast>::List>);
  STATIC_REQUIRE(has_one_shot<DefaultCandidates<Reduce>::List>);
  STATIC_REQUIRE(has_one_shot<DefaultCandidates<AllToAll>::List>);
  STATIC_REQUIRE(has_one_shot<DefaultCandidates<AllToAllV>::List>);
  STATIC_REQUIRE(has_one_shot<DefaultCandidates<Gather>::List>);
  STATIC_REQUIRE(has_one_shot<DefaultCandidates<Scatter>::List>);
  STATIC_REQUIRE(has_one_shot<DefaultCandidates<SendRecv>::List>);
}

TEST_CASE("paths have names of their own") {
  std::set<std::string_view> names;
  for (int p = 0; p < path_count; ++p) names.insert(name(Path(p)));
  CHECK(int(names.size()) == path_count);
}

TEST_CASE("between GPUs of several hosts, the network that the topology found decides") {
  const auto us = [](Packing packing, double host_gbs, double bytes, bool rdma = true) {
    const Rates by = rates_between(Path::gpu_net, Mover::wires, packing, {rdma, host_gbs});
    const Rates near = rates(Path::nvlink, Mover::wires, packing);
    return predict_us(by, near, 2.0 / 16, cost_terms_of<AllReduce, Ring>(16), bytes, 32);
  };
  SECTION("a large message takes its bytes over the bandwidth") {
    for (const double gbs : {1.25, 12.0, 96.0, 192.0, 360.0}) {
      const double bytes = 16.0 * (1 << 30), crossing = 2 * 15.0 / 16 * bytes / (gbs * 1e3);
      CHECK(us(Packing::simple, gbs, bytes) > crossing);
      // NVLink carries at most 325 GB/s of this ring.
      CHECK(us(Packing::simple, gbs, bytes) <
            std::max(1.02 * crossing, 1.2 * 360 / gbs * crossing * (gbs > 300)));
    }
  }
  SECTION("LL is left for Simple at larger messages on a faster network") {
    double last = 0;
    for (const double gbs : {12.0, 48.0, 192.0}) {
      double bytes = 1024;
      while (us(Packing::ll, gbs, bytes) < us(Packing::simple, gbs, bytes)) bytes *= 1.1;
      CHECK(bytes > last);
      CHECK(bytes > 64 << 10);
      CHECK(bytes < 64 << 20);
      last = bytes;
    }
  }
  SECTION("over TCP, and where nothing is known, the rates are those that were fitted") {
    const double fitted = us(Packing::simple, 0, 1 << 20);
    CHECK(us(Packing::simple, 360, 1 << 20, false) == fitted);
    CHECK(us(Packing::simple, 360, 1 << 20) < fitted / 3);
    CHECK(rates_between(Path::net, Mover::wires, Packing::simple, {true, 360}).gbs ==
          rates(Path::net, Mover::wires, Packing::simple).gbs);
  }
}

TEST_CASE("inside a host, the links that the topology found decide") {
  constexpr HostFacts h200{370.8, true, 90}, a100{240, true, 80}, b200{721.8, true, 100};
  constexpr double large = 1 << 30;
  const auto us = [](const HostFacts& host, Mover mover, Packing packing, double bytes,
                     int blocks) {
    const Rates by = rates_inside(Path::nvlink, mover, packing, host);
    return predict_us(by, cost_terms_of<AllReduce, Ring>(8), bytes, blocks);
  };
  SECTION("H200, and links that are not known, have the rates that were fitted") {
    for (const HostFacts& host : {h200, HostFacts{}}) {
      for (const Mover mover : {Mover::wires, Mover::peers, Mover::engines}) {
        const Rates by = rates_inside(Path::nvlink, mover, Packing::simple, host);
        const Rates fitted = rates(Path::nvlink, mover, Packing::simple);
        CHECK(by.gbs == fitted.gbs);
        CHECK(by.block_gbs == fitted.block_gbs);
        CHECK(by.few_gbs == fitted.few_gbs);
      }
    }
  }
  SECTION("a large message takes its bytes over the bandwidth, a small one as long as elsewhere") {
    for (const Packing packing : {Packing::simple, Packing::ll, Packing::ll128}) {
      const double fitted = us(h200, Mover::wires, packing, large, 128);
      CHECK(us(a100, Mover::wires, packing, large, 128) / fitted ==
            Approx(370.8 / 240).margin(0.01));
      CHECK(us(b200, Mover::wires, packing, large, 128) / fitted == Approx(0.514).margin(0.01));
      CHECK(us(a100, Mover::wires, packing, 8, 128) ==
            Approx(us(h200, Mover::wires, packing, 8, 128)));
    }
  }
  SECTION("few blocks of an older GPU move less") {
    CHECK(us(a100, Mover::wires, Packing::ll128, large, 4) /
              us(h200, Mover::wires, Packing::ll128, large, 4) ==
          Approx(36.7 / 20).margin(0.01));
  }
  SECTION("slower links keep LL128 before Simple up to smaller messages") {
    const auto until = [&](const HostFacts& host) {
      double bytes = 1024;
      while (us(host, Mover::wires, Packing::ll128, bytes, 32) <
                 us(host, Mover::wires, Packing::simple, bytes, 32) &&
             bytes < large)
        bytes *= 1.1;
      return bytes;
    };
    CHECK(until(a100) < until(h200));
    CHECK(until(a100) > 64 << 10);
  }
  SECTION("edges that do not go by NVLink have other links") {
    CHECK(rates_inside(Path::pcie, Mover::wires, Packing::simple, h200).gbs ==
          rates(Path::pcie, Mover::wires, Packing::simple).gbs);
    CHECK(rates_inside(Path::pcie, Mover::wires, Packing::simple, {48, false, 89}).gbs ==
          Approx(44));
    CHECK(rates_inside(Path::gpu_host, Mover::wires, Packing::simple, {24, false, 89}).gbs ==
          Approx(22));
    CHECK(rates_inside(Path::shm, Mover::wires, Packing::simple, a100).gbs ==
          rates(Path::shm, Mover::wires, Packing::simple).gbs);
  }
  SECTION("a network is not faster than the links inside") {
    const NetworkFacts fast{true, 800};
    CHECK(rates_between(Path::gpu_net, Mover::wires, Packing::simple, fast, a100).gbs ==
          Approx(325 * 240 / 370.8).margin(30));
    CHECK(rates_between(Path::gpu_net, Mover::wires, Packing::simple, fast, b200).gbs > 600);
  }
}
