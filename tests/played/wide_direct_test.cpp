// Direct among more ranks than have kernels of their own, on GPUs that are played on the CPU.
//
// PLAYED_RANKS asks for one other number of ranks, at most 72.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/direct.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include "support/played/wide.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Ways = P2pTransport;
}  // namespace

TEST_CASE("Direct's messages are right among 9 to 72 ranks of a host") {
  for (const int ranks : played::wide_rank_counts()) {
    auto comms = played::wide_ranks(ranks);
    for (const Index count : played::wide_counts(ranks)) {
      played::messages<Direct, Simple, Ways>(comms, count);
      played::all_gathers<Direct, Simple, Ways>(comms, count, played::wide_plan);
      played::all_to_alls<Direct, Simple, Ways>(comms, count, played::wide_plan);
    }
  }
}

TEST_CASE("Direct's reductions are right among 9 to 72 ranks of a host") {
  for (const int ranks : played::wide_rank_counts()) {
    auto comms = played::wide_ranks(ranks);
    for (const Index count : played::wide_counts(ranks)) {
      played::all_reduces<Direct, Simple, Ways>(comms, ranks * count, played::wide_plan);
      played::reduce_scatters<Direct, Simple, Ways>(comms, count, played::wide_plan);
      played::reduces<Direct, Simple, Ways>(comms, ranks * count, ranks / 2, played::wide_plan);
    }
  }
}
