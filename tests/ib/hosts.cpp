// One rank of a job whose hosts are virtual machines' (tests/ib/vm.sh): IbTransport on real verbs.
#include <ccl/ccl.hpp>

#include "core/collective_suite.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// This process's rank, in the form that the suites take.
std::vector<Communicator> world() {
  Config config;
  config.timeout_s = 60;
  config.memory_budget_bytes = Index{1} << 30;
  auto comm = Communicator::from_env(config);
  INFO((comm ? std::string{} : comm.error().message()));
  REQUIRE(comm.has_value());
  return {*comm};
}

template <class Proto>
void every_collective() {
  chosen = detail::connector<IbTransport>();
  brief = true;
  const auto comms = world();
  const Index largest = 40'003;  // more than the slots of one wire hold
  int cases = run_suite<Ring, Proto>(comms, largest);
  cases += run_suite<Tree, Proto>(comms, largest);
  cases += run_suite<Pairwise, Proto>(comms, largest);
  on_all(comms, [](const Communicator& comm) { return comm.finalize(); });
  if (comms[0].rank() == 0) {
    std::printf("%s over ib, %d hosts: %d calls checked\n", Proto::name, comms[0].ranks(), cases);
    std::fflush(stdout);
  }
}

}  // namespace

TEST_CASE("Simple") {
  every_collective<Simple>();
}
TEST_CASE("LL") {
  every_collective<LL>();
}
TEST_CASE("LL128") {
  every_collective<LL128>();
}
