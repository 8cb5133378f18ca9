#include <ccl/sim/cluster.hpp>
#include <ccl/topo/xml.hpp>

#include <fmt/format.h>

#include "support/catch.hpp"

namespace topo = ccl::topo;

namespace {

/// A machine of three GPUs, of which the second has the attributes `second`.
topo::Graph three_gpus(const std::string& second) {
  const auto gpu = [](int bus, const std::string& attributes) {
    return fmt::format(R"(<pci busid="0000:{}:00.0" link_speed="16 GT/s" link_width="16">
                       <gpu dev="{}" sm="80" {}/></pci>)",
                       bus, bus, attributes);
  };
  const auto file = topo::parse_xml(
      R"(<system><cpu numaid="0" arch="x86_64" vendor="GenuineIntel">)" + gpu(10, R"(rank="0")") +
          gpu(11, second) + gpu(12, R"(rank="2")") + "</cpu></system>",
      "machine");
  REQUIRE(file);
  const auto loaded = topo::to_graph(*file);
  if (!loaded) FAIL(loaded.error().what);
  return loaded->graph;
}

}  // namespace

TEST_CASE("a GPU without rank takes no part in a cluster") {
  const auto cluster = ccl::sim::Cluster::of(three_gpus(""), 1);
  if (!cluster) FAIL(cluster.error().what);
  CHECK(cluster->locals() == 2);
  CHECK(cluster->plan().ring.channels.at(0).ranks.size() == 2);
  const topo::Graph& machine = cluster->machine();
  CHECK(machine.nodes[machine.gpu_of_rank(1)].gpu.dev == 12);

  const auto all = ccl::sim::Cluster::of(three_gpus(R"(rank="1")"), 1);
  REQUIRE(all);
  CHECK(all->locals() == 3);
}
