// Collectives over wires, whose kernels run on GPUs that are played on the CPU.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include "support/played/calls.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int multiprocessors = 4;
/// Small slots, so that a message takes many rounds. The protocols' own slots take long to clear.
constexpr Plan small{.channels = 4, .slot_count = 4, .slot_bytes = 32 << 10};
}  // namespace

TEST_CASE("an all-reduce by a ring runs on played GPUs with each protocol") {
  played::install(8, multiprocessors);
  for (const int ranks : {2, 3, 8}) {
    auto comms = played::create_ranks(ranks);
    for (const Index count : {Index{0}, Index{1}, Index{20'000}}) {
      played::all_reduces<Ring, Simple, P2pTransport>(comms, count, small);
      played::all_reduces<Ring, LL, P2pTransport>(comms, count, small);
      played::all_reduces<Ring, LL128, P2pTransport>(comms, count, small);
    }
  }
}

TEST_CASE("an all-reduce by two trees runs on played GPUs, with the plan of ccl") {
  played::install(8, multiprocessors);
  auto comms = played::create_ranks(5);
  played::all_reduces<Tree, LL, P2pTransport>(comms, 3000);
}

TEST_CASE("messages between pairs run on played GPUs") {
  played::install(8, multiprocessors);
  auto comms = played::create_ranks(6);
  for (const Index count : {Index{0}, Index{1}, Index{3000}}) {
    played::all_to_alls<Pairwise, LL, P2pTransport>(comms, count, small);
    played::send_recvs<Pairwise, LL, P2pTransport>(comms, count, small);
  }
}
