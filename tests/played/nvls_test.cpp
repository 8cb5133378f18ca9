// Nvls in kernels, by loads and stores to each peer in the place of NVLink multicast, on GPUs that
// are played on the CPU.
#define CCL_PLAYED_WARP 8  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/nvls.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/nvls.hpp>

#include "support/played/wide.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Ways = EmulatedNvlsTransport;
}  // namespace

TEST_CASE("Nvls' collectives are right in kernels that emulate multicast") {
  for (const int ranks : {2, 3, 9}) {
    auto comms = played::wide_ranks(ranks);
    for (const Index count : played::wide_counts(ranks)) {
      const Plan plan = played::wide_plan;
      played::all_reduces<Nvls, Simple, Ways>(comms, count, plan);
      played::all_gathers<Nvls, Simple, Ways>(comms, count, plan);
      played::reduce_scatters<Nvls, Simple, Ways>(comms, count, plan);
      played::broadcasts<Nvls, Simple, Ways>(comms, count, ranks - 1, plan);
      played::reduces<Nvls, Simple, Ways>(comms, count, ranks / 2, plan);
    }
  }
}
