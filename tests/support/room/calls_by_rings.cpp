#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective.cuh>
#include <ccl/hierarchical.hpp>

#include "support/played/calls.hpp"
#include "support/room/calls.hpp"
#include "support/room/traffic.hpp"

namespace ccl::test::room {
namespace rings {
void all_reduces(Ranks& ranks, Index count, MaybePlan plan, int calls) {
  played::all_reduces<Ring, Simple, Ways>(ranks, count, plan, calls);
}
void all_gathers(Ranks& ranks, Index count, MaybePlan plan, int calls) {
  played::all_gathers<Ring, Simple, Ways>(ranks, count, plan, calls);
}
void reduce_scatters(Ranks& ranks, Index count, MaybePlan plan, int calls) {
  played::reduce_scatters<Ring, Simple, Ways>(ranks, count, plan, calls);
}
void broadcasts(Ranks& ranks, Index count, int root, MaybePlan plan, int calls) {
  played::broadcasts<Ring, Simple, Ways>(ranks, count, root, plan, calls);
}
void all_reduces_by_lines(Ranks& ranks, Index count, MaybePlan plan, int calls) {
  played::all_reduces<Ring, LL128, IbTransport>(ranks, count, plan, calls);
}
void all_reduces_by_words(Ranks& ranks, Index count, MaybePlan plan, int calls) {
  played::all_reduces<Ring, LL, P2pTransport>(ranks, count, plan, calls);
}
void all_gathers_by_words(Ranks& ranks, Index count, MaybePlan plan, int calls) {
  played::all_gathers<Ring, LL, P2pTransport>(ranks, count, plan, calls);
}
void reduce_scatters_by_words(Ranks& ranks, Index count, MaybePlan plan, int calls) {
  played::reduce_scatters<Ring, LL, P2pTransport>(ranks, count, plan, calls);
}
namespace {
template <class Proto>
Result<RankCall> create_by(const played::Rank& rank, MaybePlan plan) {
  CCL_TRY(const auto made, (Collective<AllReduce, Ring, Proto, Ways>::create(rank.comm, plan)));
  return [made](const played::Rank& of, Index count, int calls) {
    return played::all_reduce(of, made, count, calls);
  };
}
}  // namespace
Result<RankCall> create(const played::Rank& rank, MaybePlan plan, bool by_lines) {
  return by_lines ? create_by<LL128>(rank, plan) : create_by<Simple>(rank, plan);
}
}  // namespace rings

namespace levels {
using Rings = Hierarchical<Ring, Ring>;
void all_reduces(Ranks& ranks, Index count, MaybePlan plan, int calls) {
  played::all_reduces<Rings, Simple, Ways>(ranks, count, plan, calls);
}
void all_gathers(Ranks& ranks, Index count, MaybePlan plan, int calls) {
  played::all_gathers<Rings, Simple, Ways>(ranks, count, plan, calls);
}
void reduce_scatters(Ranks& ranks, Index count, MaybePlan plan, int calls) {
  played::reduce_scatters<Rings, Simple, Ways>(ranks, count, plan, calls);
}
}  // namespace levels
}  // namespace ccl::test::room
