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

template <class Algo, class Proto>
int count(const std::vector<Communicator>& comms) {
  const Index largest = 40'003;  // more than the slots of one wire hold
  const int cases = run_suite<Algo, Proto>(comms, largest);
  if (comms[0].rank() == 0) {
    std::printf("%d hosts: %s, %s: %d calls checked\n", comms[0].ranks(), Algo::name, Proto::name,
                cases);
    std::fflush(stdout);
  }
  return cases;
}

template <class Proto>
void every_collective() {
  chosen = detail::connector<IbTransport>();
  brief = true;
  const auto comms = world();
  const int cases = count<Ring, Proto>(comms) + count<Tree, Proto>(comms) +
                    count<Pairwise, Proto>(comms) + count<Bruck, Proto>(comms) +
                    count<Doubling, Proto>(comms);
  CHECK(cases > 0);
  on_all(comms, [](const Communicator& comm) { return comm.finalize(); });
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
