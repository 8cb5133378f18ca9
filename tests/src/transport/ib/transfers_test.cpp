// What the proxies of ranks note about the steps that they move over RDMA, on emulated devices.

#include "support/environment.hpp"
#include "support/fake_verbs.hpp"
#include "support/noted_transfers.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::transfers;

TEST_CASE("steps over RDMA are in the records of both ends, with their NICs") {
  const FakeVerbs fabric{1};
  const Environment wanted{{{"CCL_TRACE_TRANSFERS", "5000"}}};
  check_both_ends(sums_over(Via::ib), "fake_0:1");
}
