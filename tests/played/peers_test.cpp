// Collectives over the memory of peers, whose kernels run on GPUs that are played on the CPU.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/direct.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include "support/played/calls.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int multiprocessors = 4;
/// Little scratch: ccl's own takes long to clear.
constexpr Plan small{.channels = 1, .slot_count = 2, .slot_bytes = 256 << 10};
}  // namespace

TEST_CASE("one-shot and two-shot all-reduces run on played GPUs") {
  played::install(8, multiprocessors);
  for (const int ranks : {2, 8}) {
    auto comms = played::create_ranks(ranks);
    for (const Index count : {Index{1}, Index{20'000}}) {
      played::all_reduces<OneShot, LL128, P2pTransport>(comms, count, small);
      played::all_reduces<TwoShot, LL128, P2pTransport>(comms, count, small);
    }
  }
}

TEST_CASE("messages into the memory of peers run on played GPUs") {
  played::install(3, 2);
  auto comms = played::create_ranks(3);
  for (const Index count : {Index{1}, Index{3000}}) {
    played::send_recvs<OneShot, LL128, P2pTransport>(comms, count, small);
    played::send_recvs<Direct, Simple, P2pTransport>(comms, count, small);
    played::all_to_alls<Direct, Simple, P2pTransport>(comms, count, small);
  }
}

TEST_CASE("reductions that read the buffers of peers run on played GPUs") {
  played::install(3, 2);
  auto comms = played::create_ranks(3);
  for (const Index count : {Index{1}, Index{3000}, Index{100'000}}) {
    played::all_reduces<Direct, Simple, P2pTransport>(comms, count, small);
    played::reduce_scatters<Direct, Simple, P2pTransport>(comms, count, small);
    for (const int root : {0, 2}) {
      played::reduces<Direct, Simple, P2pTransport>(comms, count, root, small);
    }
  }
}

TEST_CASE("a kernel over peer memory that waits names its own call") {
  played::install(2, multiprocessors);
  auto comms = played::create_ranks(2);
  std::vector<float> data[2] = {std::vector<float>(100), std::vector<float>(100)};
  using Sums = Collective<AllReduce, OneShot, LL128, P2pTransport>;
  played::wait_in_own_calls<Sums>(comms, small, [&](const Sums& sums, const played::Rank& rank) {
    float* const own = data[rank.rank].data();
    return sums(own, own, 100, Sum{}, rank.stream);
  });
}
