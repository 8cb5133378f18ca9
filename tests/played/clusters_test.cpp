// Thread block clusters of launches, by the GPU, the size of the launch and the setting.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include <string>
#include <vector>

#include "support/environment.hpp"
#include "support/played/calls.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using TreeOfGpus = Collective<AllReduce, Tree, Simple, P2pTransport>;

/// Launches with clusters, of 5 calls of two ranks on so many channels.
int clustered(int channels, int capability = 90, int multiprocessors = 132) {
  constexpr int ranks = 2, calls = 5;
  FakeGpus& gpus = played::install(ranks, multiprocessors);
  for (int device = 0; device < ranks; ++device) gpus.capabilities[device] = capability;
  auto comms = played::create_ranks(ranks);
  const int before = played::clustered_launches;
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto tree = TreeOfGpus::create(rank.comm, Plan{.channels = channels});
    if (!tree) return tree.error().message();
    constexpr Index count = 1 << 16;
    std::vector<float> data(count, 1);
    for (int call = 0; call < calls; ++call) {
      const auto done = (*tree)(data.data(), data.data(), count, Sum{}, rank.stream);
      if (!done) return done.error().message();
    }
    rank.synchronize();
    return data[0] == float(1 << calls) ? "" : "a wrong sum";
  });
  return played::clustered_launches - before;
}
}  // namespace

TEST_CASE("launches of 16 blocks or more have clusters on GPUs of sm_90 to sm_110") {
  CHECK(clustered(32) == 10);
  CHECK(clustered(16) == 10);
  CHECK(clustered(8) == 0);
  CHECK(clustered(32, 100) == 10);
  CHECK(clustered(32, 120) == 0);
  CHECK(clustered(16, 90, 78) == 10);  // the default is 19 blocks
  const Environment none{"CCL_CGA_CLUSTER_SIZE", "0"};
  CHECK(clustered(32) == 0);
}

TEST_CASE("launches whose blocks are no whole clusters have none") {
  const Environment size{"CCL_CGA_CLUSTER_SIZE", "8"};
  CHECK(clustered(32) == 10);
  CHECK(clustered(20) == 0);
}

TEST_CASE("kernels that are compiled for a GPU before sm_90 have no clusters") {
  CHECK(clustered(32, 80) == 0);
  CHECK(clustered(32, 90) == 0);  // those of this process are for the first GPU
}
