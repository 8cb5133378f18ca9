// OneShot and TwoShot among more ranks than have kernels of their own, on GPUs that are played on
// the CPU.
//
// PLAYED_RANKS asks for one other number of ranks, at most 72.
#define CCL_PLAYED_WARP 8  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include "support/played/wide.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Ways = P2pTransport;
}  // namespace

TEST_CASE("OneShot's collectives are right among 9 to 72 ranks of a host") {
  for (const int ranks : played::wide_rank_counts()) {
    auto comms = played::wide_ranks(ranks);
    const int root = ranks - 1;
    for (const Index count : played::wide_counts(ranks)) {
      const Plan plan = played::wide_plan;
      played::all_reduces<OneShot, LL, Ways>(comms, count, plan);
      played::all_reduces<OneShot, LL128, Ways>(comms, count, plan);
      played::all_gathers<OneShot, LL128, Ways>(comms, count, plan);
      played::reduce_scatters<OneShot, LL128, Ways>(comms, count, plan);
      played::all_to_alls<OneShot, LL128, Ways>(comms, count, plan);
      played::reduces<OneShot, LL128, Ways>(comms, count, root, plan);
    }
  }
}

TEST_CASE("TwoShot's collectives are right among 9 to 72 ranks of a host") {
  for (const int ranks : played::wide_rank_counts()) {
    auto comms = played::wide_ranks(ranks);
    for (const Index each : played::wide_counts(ranks)) {
      const Index count = each == 1 ? 1 : 8 * each;
      const Plan plan = played::wide_plan;
      played::all_reduces<TwoShot, LL128, Ways>(comms, count, plan);
      played::broadcasts<TwoShot, LL128, Ways>(comms, count, 1, plan);
      played::reduces<TwoShot, LL128, Ways>(comms, count, ranks / 2, plan);
    }
  }
}
