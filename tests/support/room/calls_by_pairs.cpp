#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective.cuh>

#include "support/played/calls.hpp"
#include "support/room/calls.hpp"
#include "support/room/traffic.hpp"

namespace ccl::test::room::pairs {
void all_to_alls(Ranks& ranks, Index count, MaybePlan plan, int calls) {
  played::all_to_alls<Pairwise, Simple, Ways>(ranks, count, plan, calls);
}
void all_to_all_vs(Ranks& ranks, MaybePlan plan, int calls) {
  played::all_to_all_vs<Pairwise, Simple, Ways>(ranks, plan, calls);
}
void gathers(Ranks& ranks, Index count, int root, MaybePlan plan, int calls) {
  played::gathers<Pairwise, Simple, Ways>(ranks, count, root, plan, calls);
}
void scatters(Ranks& ranks, Index count, int root, MaybePlan plan, int calls) {
  played::scatters<Pairwise, Simple, Ways>(ranks, count, root, plan, calls);
}
void send_recvs(Ranks& ranks, Index count, MaybePlan plan, int calls, int distance) {
  played::send_recvs<Pairwise, Simple, Ways>(ranks, count, plan, calls, distance);
}
Result<RankCall> create(const played::Rank& rank, MaybePlan plan, int distance) {
  CCL_TRY(const auto made, (Collective<SendRecv, Pairwise, Simple, Ways>::create(rank.comm, plan)));
  return [made, distance](const played::Rank& of, Index count, int calls) {
    return played::send_recv(of, made, count, calls, distance);
  };
}
}  // namespace ccl::test::room::pairs
