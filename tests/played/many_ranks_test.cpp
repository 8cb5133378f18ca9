// More GPU ranks than any host has, on GPUs that are played on the CPU. A warp has two lanes.
#define CCL_PLAYED_WARP 2
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "support/played/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

Plan small_plan() {
  Plan plan;
  plan.slot_count = 4;
  plan.slot_bytes = 512;
  return plan;
}

std::string all_reduce(const played::Rank& rank) {
  const auto ring = Collective<AllReduce, Ring, LL, P2pTransport>::create(rank.comm, small_plan());
  if (!ring) return ring.error().message();
  constexpr Index count = 500;
  std::vector<float> in(count, float(rank.rank)), out(count, -1);
  const auto done = (*ring)(in.data(), out.data(), count, Sum{}, rank.stream);
  if (!done) return done.error().message();
  rank.synchronize();
  const float wanted = float(rank.ranks * (rank.ranks - 1) / 2);
  for (const float is : out) {
    if (is != wanted) return fmt::format("{} and not {}", is, wanted);
  }
  return {};
}

}  // namespace

TEST_CASE("many GPU ranks reduce") {
  const char* const given = std::getenv("RANKS");
  const int ranks = given != nullptr ? std::atoi(given) : 72;
  played::install(ranks, 2);
  const char* const hosts = std::getenv("PER_HOST");
  auto comms = played::create_ranks(ranks, hosts != nullptr ? std::atoi(hosts) : 4);
  played::on_each(comms, all_reduce);
}
