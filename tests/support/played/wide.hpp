#pragma once

// Communicators of more ranks than the kernels that are compiled for their number of ranks. Include
// <ccl/collective.cuh> first.
#include <ccl/algo/rank_counts.hpp>
#include <ccl/types/plan.hpp>

#include <cstdlib>
#include <vector>

#include "support/environment.hpp"
#include "support/played/calls.hpp"

namespace ccl::test::played {

/// Little scratch: ccl's own takes long to clear.
constexpr Plan wide_plan{.channels = 1, .slot_count = 2, .slot_bytes = 256 << 10};

/// The first numbers of ranks beyond one batch and beyond two, 16, and the largest, which take
/// long.
inline std::vector<int> wide_rank_counts() {
  if (const char* const given = std::getenv("PLAYED_RANKS")) return {std::atoi(given)};
#ifndef CCL_TEST_LONG
  return {9, 17};
#else
  return {9, 16, 17, max_view_ranks};
#endif
}
/// Elements of a message to each rank that take several launches with `wide_plan`.
inline Index several_launches(int ranks) {
  return Index{3} * wide_plan.slot_bytes / Index{sizeof(float)} / ranks / 2;
}
/// Elements of messages to each rank: one, and several launches. Of the most ranks the short suite
/// sends short messages only: seconds of work on few cores starve the bootstrap's connections.
inline std::vector<Index> wide_counts(int ranks) {
#ifndef CCL_TEST_LONG
  if (ranks > 17) return {5};
#endif
  return {1, several_launches(ranks)};
}
/// `per_host`: GPUs of a host; 0: all are on one.
inline Ranks wide_ranks(int ranks, int per_host = 0) {
  const Environment no_trials{"CCL_P2P_CHECK", "0"};  // of each path between two GPUs
  install(ranks, 2);
  return create_ranks(ranks, per_host);
}

/// Operations that are messages between pairs of ranks.
template <class Algo, class Proto, class T>
void messages(Ranks& comms, Index count) {
  const Plan plan = wide_plan;
  const int root = int(comms.size()) - 1;
  send_recvs<Algo, Proto, T>(comms, 4 * count, plan, 3, root / 2);
  all_to_all_vs<Algo, Proto, T>(comms, plan);
  broadcasts<Algo, Proto, T>(comms, count, root, plan);
  gathers<Algo, Proto, T>(comms, count, root, plan);
  scatters<Algo, Proto, T>(comms, count, 1, plan);
}

}  // namespace ccl::test::played
