#pragma once

// Calls of compositions between the hosts of a machine room, and checks of what they leave. They
// are compiled once, in calls_by_rings.cpp, calls_by_trees.cpp and calls_by_pairs.cpp, for lanes
// of `CCL_PLAYED_WARP` 2.
#include <ccl/types/plan.hpp>

#include <functional>
#include <optional>
#include <string>

#include "support/played/ranks.hpp"

namespace ccl::test::room {

using played::Ranks;
using MaybePlan = std::optional<Plan>;
/// Calls of a composition that exists: returns what went wrong.
using RankCall = std::function<std::string(const played::Rank&, Index count, int calls)>;

/// `Ring` by Simple, over NVLink inside a host and RDMA between hosts.
namespace rings {
void all_reduces(Ranks& ranks, Index count, MaybePlan plan, int calls);
void all_gathers(Ranks& ranks, Index count, MaybePlan plan, int calls);
void reduce_scatters(Ranks& ranks, Index count, MaybePlan plan, int calls);
void broadcasts(Ranks& ranks, Index count, int root, MaybePlan plan, int calls);
/// All-reduces by LL128 over RDMA alone.
void all_reduces_by_lines(Ranks& ranks, Index count, MaybePlan plan, int calls);
/// Calls by LL over NVLink alone.
void all_reduces_by_words(Ranks& ranks, Index count, MaybePlan plan, int calls);
void all_gathers_by_words(Ranks& ranks, Index count, MaybePlan plan, int calls);
void reduce_scatters_by_words(Ranks& ranks, Index count, MaybePlan plan, int calls);
/// Creates an all-reduce of one rank, by LL128 or by Simple. Collective.
Result<RankCall> create(const played::Rank& rank, MaybePlan plan, bool by_lines = false);
}  // namespace rings

/// `Hierarchical<Ring, Ring>` by Simple.
namespace levels {
void all_reduces(Ranks& ranks, Index count, MaybePlan plan, int calls);
void all_gathers(Ranks& ranks, Index count, MaybePlan plan, int calls);
void reduce_scatters(Ranks& ranks, Index count, MaybePlan plan, int calls);
}  // namespace levels

/// `Tree` by Simple.
namespace trees {
void all_reduces(Ranks& ranks, Index count, MaybePlan plan, int calls);
void broadcasts(Ranks& ranks, Index count, int root, MaybePlan plan, int calls);
void reduces(Ranks& ranks, Index count, int root, MaybePlan plan, int calls);
Result<RankCall> create(const played::Rank& rank, MaybePlan plan);
}  // namespace trees

/// `Pairwise` by Simple.
namespace pairs {
void all_to_alls(Ranks& ranks, Index count, MaybePlan plan, int calls);
void all_to_all_vs(Ranks& ranks, MaybePlan plan, int calls);
void gathers(Ranks& ranks, Index count, int root, MaybePlan plan, int calls);
void scatters(Ranks& ranks, Index count, int root, MaybePlan plan, int calls);
/// Each rank sends to the rank that is `distance` ahead.
void send_recvs(Ranks& ranks, Index count, MaybePlan plan, int calls, int distance = 1);
Result<RankCall> create(const played::Rank& rank, MaybePlan plan, int distance);
}  // namespace pairs

}  // namespace ccl::test::room
