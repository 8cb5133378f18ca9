// The links between the GPUs of a machine, as the cost model takes them.
#include "topo/search/gpu_links.hpp"

#include "support/catch.hpp"
#include "support/graph_of.hpp"
#include "support/room/shapes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

topo::GpuLinks links_of(const topo::Graph& graph) {
  return topo::gpu_links(graph, compute_paths(graph, topo::PathRules{}));
}
topo::GpuLinks links_of(room::Shape shape) {
  return links_of(graph_of(room::topology(
      shape, 0, shape.gpus, [](int gpu) { return fmt::format("0000:{:02x}:00.0", 0x10 + gpu); })));
}

}  // namespace

TEST_CASE("GPUs at an NVSwitch have the bandwidth of all their NVLinks") {
  const auto hopper = links_of(room::dgx());
  CHECK(hopper.nvlink);
  CHECK(hopper.bw == Approx(18 * 20.6));
  const auto ampere = links_of(room::ndv4());
  CHECK(ampere.nvlink);
  CHECK(ampere.bw == Approx(12 * 20));
}

TEST_CASE("GPUs without NVLink have the bandwidth of the slowest path between two") {
  auto shape = room::ndv4();
  shape.nvlinks = 0;
  const auto links = links_of(shape);
  CHECK_FALSE(links.nvlink);
  CHECK(links.bw == Approx(topo::gbps::sys_amd));
}

TEST_CASE("a GPU alone has no links to others") {
  auto shape = room::dgx();
  const auto one = graph_of(room::topology(shape, 0, 1, [](int) { return "0000:10:00.0"; }));
  CHECK(links_of(one).bw == 0);
}
