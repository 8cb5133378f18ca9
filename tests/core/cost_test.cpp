#include <ccl/candidates.hpp>
#include <ccl/cost.hpp>

#include <set>

#include "catch.hpp"

using namespace ccl;
using namespace ccl::detail;

TEST_CASE("algorithms say how far and how much they carry") {
  STATIC_REQUIRE(effort_of<AllReduce, Ring>(4).hops == 6);
  STATIC_REQUIRE(effort_of<AllReduce, Ring>(4).volume == 1.5);
  STATIC_REQUIRE(effort_of<AllGather, Ring>(4).hops == 3);
  STATIC_REQUIRE(effort_of<Broadcast, Ring>(4).volume == 1);
  STATIC_REQUIRE(effort_of<AllReduce, OneShot>(8).hops == 1);
  STATIC_REQUIRE(effort_of<AllReduce, OneShot>(8).volume == 7);
  STATIC_REQUIRE(effort_of<AllReduce, TwoShot>(8).volume == 1.75);
  STATIC_REQUIRE(effort_of<AllReduce, Doubling>(8).hops == 3);
  STATIC_REQUIRE(effort_of<AllReduce, Doubling>(7).hops == 4);
  STATIC_REQUIRE(effort_of<AllGather, Bruck>(5).hops == 3);
  STATIC_REQUIRE(effort_of<AllReduce, Tree>(5).hops == 6);
  struct Silent {};
  STATIC_REQUIRE(effort_of<AllReduce, Silent>(3).hops == 4);
}

TEST_CASE("only what keeps one order says so") {
  STATIC_REQUIRE(order_of<AllReduce, OneShot>() == SumOrder::by_rank);
  STATIC_REQUIRE(order_of<AllReduce, TwoShot>() == SumOrder::by_rank);
  STATIC_REQUIRE(order_of<AllReduce, Ring>() == SumOrder::varies);
  STATIC_REQUIRE(order_of<AllReduce, Tree>() == SumOrder::varies);
  STATIC_REQUIRE(order_of<AllReduce, OneTree>() == SumOrder::tree);
  STATIC_REQUIRE(order_of<ReduceScatter, Ring>() == SumOrder::ring);
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
  const auto us = [](Packing packing, Mover mover, const Effort& effort, double bytes) {
    return predict_us(rates(Path::nvlink, mover, packing), effort, bytes, 128);
  };
  // benchmarks/gpu/results/h200x4.jsonl
  const struct {
    double measured, predicted;
  } cases[] = {
      {1.76, us(Packing::ll128, Mover::peers, effort_of<AllReduce, OneShot>(4), 256)},
      {2.57, us(Packing::ll128, Mover::peers, effort_of<AllReduce, OneShot>(4), 65536)},
      {7.09, us(Packing::ll128, Mover::peers, effort_of<AllReduce, TwoShot>(4), 1 << 20)},
      {21.9, us(Packing::ll128, Mover::peers, effort_of<AllReduce, TwoShot>(4), 4 << 20)},
      {12.6, us(Packing::ll128, Mover::peers, effort_of<AllGather, OneShot>(4), 4 << 20)},
      {9.33, us(Packing::ll128, Mover::wires, effort_of<AllReduce, Ring>(4), 1 << 20)},
      {27.7, us(Packing::ll128, Mover::wires, effort_of<AllReduce, Ring>(4), 4 << 20)},
      {6.46, us(Packing::ll, Mover::wires, effort_of<AllReduce, Ring>(4), 16384)},
      {81.8, us(Packing::simple, Mover::wires, effort_of<AllReduce, Ring>(4), 16 << 20)},
      {4400, us(Packing::simple, Mover::wires, effort_of<AllReduce, Ring>(4), 1 << 30)},
      {131, us(Packing::ll128, Mover::wires, effort_of<AllReduce, Tree>(4), 16 << 20)},
      {446, us(Packing::simple, Mover::wires, effort_of<AllReduce, Tree>(4), 64 << 20)},
      {67.5, us(Packing::simple, Mover::engines, effort_of<AllGather, WindowCopies>(4), 16 << 20)},
      {559, us(Packing::simple, Mover::engines, effort_of<AllToAll, WindowCopies>(4), 256 << 20)},
      {712, us(Packing::simple, Mover::engines, effort_of<SendRecv, WindowCopies>(4), 256 << 20)},
  };
  for (const auto& one : cases) {
    INFO(one.measured);
    CHECK(one.predicted == Approx(one.measured).epsilon(0.33));
  }
}

TEST_CASE("paths have names of their own") {
  std::set<std::string_view> names;
  for (int p = 0; p < path_count; ++p) names.insert(name(Path(p)));
  CHECK(int(names.size()) == path_count);
}
