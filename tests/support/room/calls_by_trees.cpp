#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>

#include "support/played/calls.hpp"
#include "support/room/calls.hpp"
#include "support/room/traffic.hpp"

namespace ccl::test::room::trees {
void all_reduces(Ranks& ranks, Index count, MaybePlan plan, int calls) {
  played::all_reduces<Tree, Simple, Ways>(ranks, count, plan, calls);
}
void broadcasts(Ranks& ranks, Index count, int root, MaybePlan plan, int calls) {
  played::broadcasts<Tree, Simple, Ways>(ranks, count, root, plan, calls);
}
void reduces(Ranks& ranks, Index count, int root, MaybePlan plan, int calls) {
  played::reduces<Tree, Simple, Ways>(ranks, count, root, plan, calls);
}
Result<RankCall> create(const played::Rank& rank, MaybePlan plan) {
  CCL_TRY(const auto made, (Collective<AllReduce, Tree, Simple, Ways>::create(rank.comm, plan)));
  return [made](const played::Rank& of, Index count, int calls) {
    return played::all_reduce(of, made, count, calls);
  };
}
}  // namespace ccl::test::room::trees
