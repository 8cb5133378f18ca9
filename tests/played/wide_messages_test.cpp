// OneShot's messages among more ranks than have kernels of their own, on GPUs that are played on
// the CPU.
//
// PLAYED_RANKS asks for one other number of ranks, at most 72.
#define CCL_PLAYED_WARP 8  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/one_shot.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include "support/played/wide.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Ways = P2pTransport;
}  // namespace

TEST_CASE("OneShot's messages are right among 9 to 72 ranks of a host") {
  for (const int ranks : played::wide_rank_counts()) {
    auto comms = played::wide_ranks(ranks);
    for (const Index count : played::wide_counts(ranks)) {
      played::messages<OneShot, LL128, Ways>(comms, count);
    }
    for (const Index row : {Index{3}, Index{600}}) {  // together, and apart
      played::counted_all_to_alls<OneShot, LL128, Ways>(comms, row, played::wide_plan);
    }
  }
}
