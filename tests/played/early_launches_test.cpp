// Early launches by the architecture that the kernels are compiled for.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include <string>
#include <vector>

#include "support/played/calls.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using TreeOfGpus = Collective<AllReduce, Tree, LL, P2pTransport>;

/// Early launches of 20 calls of two ranks on GPUs of a compute capability.
int early_launches(int capability) {
  constexpr int ranks = 2;
  FakeGpus& gpus = played::install(ranks, 64);
  for (int device = 0; device < ranks; ++device) gpus.capabilities[device] = capability;
  auto comms = played::create_ranks(ranks);
  const int before = played::early_launches();
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto tree = TreeOfGpus::create(rank.comm, Plan{.channels = 2});
    if (!tree) return tree.error().message();
    constexpr Index count = 100;
    std::vector<float> data(count, 1);
    for (int call = 0; call < 20; ++call) {
      const auto done = (*tree)(data.data(), data.data(), count, Sum{}, rank.stream);
      if (!done) return done.error().message();
    }
    rank.synchronize();
    return data[0] == float(1 << 20) ? "" : "a wrong sum";
  });
  return played::early_launches() - before;
}
}  // namespace

TEST_CASE("launches begin early if their kernels are compiled for sm_90 or later") {
  CHECK(early_launches(90) > 0);
  CHECK(early_launches(100) > 0);
  CHECK(early_launches(80) == 0);  // the last: such a kernel ends early launches for good
}
