#include <ccl/ccl.hpp>

#include <string>

#include "support/catch.hpp"
#include "support/environment.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("if no candidate is left, reasons that concern this kind of rank come first") {
  using Sums = Collective<AllReduce, AutoOf<OnGpus<Candidate<Tree, LL>>, Candidate<Ring, Simple>>,
                          Auto, LoopbackTransport>;
  const auto comms = Communicator::create_all(1);
  REQUIRE(comms);
  const Environment setting{"CCL_ALGO", "doubling,tree"};
  const auto made = Sums::create(comms->front());
  REQUIRE_FALSE(made);
  INFO(made.error().message());
  CHECK(
      made.error().what.find("(Ring/Simple: CCL_ALGO is doubling,tree; Tree/LL: for GPUs only)") !=
      std::string::npos);
}
