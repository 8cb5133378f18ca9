// As many GPU ranks as an NVLink domain has, on GPUs that are played on the CPU.
//
// PLAYED_RANKS asks for another number. More than 200 take minutes, most of which go into the
// bootstrap.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include <cstdlib>

#include "support/environment.hpp"
#include "support/played/calls.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr Plan small{.channels = 1, .slot_count = 2, .slot_bytes = 512};

played::Ranks many_ranks() {
  const Environment no_trials{"CCL_P2P_CHECK", "0"};  // of each path between two GPUs
  const char* const given = std::getenv("PLAYED_RANKS");
  const int ranks = given != nullptr ? std::atoi(given) : 72;
  played::install(ranks, 2);
  return played::create_ranks(ranks, 4);
}
}  // namespace

TEST_CASE("72 GPUs of 18 hosts reduce by a ring and pass messages on") {
  auto comms = many_ranks();
  played::all_reduces<Ring, LL, P2pTransport>(comms, 500, small);
}
