// As many GPU ranks as an NVLink domain has, on GPUs that are played on the CPU.
//
// PLAYED_RANKS asks for another number. More than 200 take minutes, most of which go into the
// bootstrap.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include <cstdlib>

#include "support/environment.hpp"
#include "support/played/calls.hpp"
#include "support/room/calls.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
#ifdef CCL_TEST_LONG
constexpr int many = 144, in_pairs = 88;  // all pairs of 128 take more than 20,000 descriptors
#else
constexpr int many = 72, in_pairs = 72;
#endif
constexpr Plan small{.channels = 1, .slot_count = 2, .slot_bytes = 512};

played::Ranks many_ranks(int per_host, int wanted = many) {
  const Environment no_trials{"CCL_P2P_CHECK", "0"};  // of each path between two GPUs
  const char* const given = std::getenv("PLAYED_RANKS");
  const int ranks = given != nullptr ? std::atoi(given) : wanted;
  played::install(ranks, 2);
  return played::create_ranks(ranks, per_host);
}
}  // namespace

TEST_CASE("GPUs of 18 hosts and more reduce by a ring and pass messages on") {
  auto comms = many_ranks(4);
  room::rings::all_reduces_by_words(comms, 500, small, 3);
}

TEST_CASE("collectives by rings and trees are right among the GPUs of 9 hosts of 8 and more") {
  auto comms = many_ranks(8);
  using Ways = P2pTransport;
  const int root = int(comms.size()) - 1, calls = 2;
  room::rings::all_reduces(comms, 500, small, calls);
  played::all_reduces<Tree, LL, Ways>(comms, 500, small, calls);
  room::rings::all_gathers_by_words(comms, 9, small, calls);
  room::rings::reduce_scatters_by_words(comms, 9, small, calls);
  played::broadcasts<Tree, LL, Ways>(comms, 500, root, small, calls);
  played::reduces<Tree, LL, Ways>(comms, 500, root, small, calls);
}

TEST_CASE("messages of all kinds are right among the GPUs of 9 hosts of 8 and more") {
  auto comms = many_ranks(8, in_pairs);
  using Ways = P2pTransport;
  const int root = int(comms.size()) - 1, calls = 2;
  played::all_to_alls<Pairwise, LL, Ways>(comms, 9, small, calls);
  played::all_to_all_vs<Pairwise, LL, Ways>(comms, small, calls);
  played::gathers<Pairwise, LL, Ways>(comms, 9, root, small, calls);
  played::scatters<Pairwise, LL, Ways>(comms, 9, root, small, calls);
  played::send_recvs<Pairwise, LL, Ways>(comms, 50, small, calls, 8);
}
