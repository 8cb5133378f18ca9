// One rank of a job on virtual hosts (tests/ib/vm.sh): IbTransport on real verbs or, with
// VM_TRANSPORT=socket, SocketTransport. With SPARSE set it makes two calls of each operation
// instead of nine. It then runs Pairwise only with Simple and on few hosts, because most of its
// time goes into R(R - 1) connections for each operation.
#include <ccl/algo/bruck.hpp>
#include <ccl/algo/doubling.hpp>
#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/pat.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/hierarchical.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/ib.hpp>
#include <ccl/transport/socket.hpp>

#include <cstdlib>
#include <string_view>
#include <type_traits>

#include "support/collective_suite.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

void choose_transport() {
  const char* const transport = std::getenv("VM_TRANSPORT");
  const bool tcp = transport != nullptr && std::string_view{transport} == "socket";
  chosen =
      tcp ? detail::transport_table<SocketTransport>() : detail::transport_table<IbTransport>();
}

/// This process's rank, in the form that the suites take.
std::vector<Communicator> world() {
  Config config;
  config.timeout_s = 200;
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
  choose_transport();
  thoroughness = std::getenv("SPARSE") != nullptr ? Thoroughness::sparse : Thoroughness::brief;
  const auto comms = world();
  int cases = count<Ring, Proto>(comms) + count<Tree, Proto>(comms) + count<Pat, Proto>(comms) +
              count<Bruck, Proto>(comms) + count<Doubling, Proto>(comms);
  const bool few = std::is_same_v<Proto, Simple> && comms[0].ranks() <= 4;
  if (thoroughness != Thoroughness::sparse || few) cases += count<Pairwise, Proto>(comms);
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
// CCL_HOSTID makes several ranks one host.
TEST_CASE("levels", "[.]") {
  choose_transport();
  thoroughness = Thoroughness::sparse;
  const auto comms = world();
  CHECK(count<Hierarchical<Ring, Ring>, Simple>(comms) > 0);
  CHECK(count<Hierarchical<Tree, Tree>, LL128>(comms) > 0);
  CHECK(count<Hierarchical<Pairwise, Pairwise>, Simple>(comms) > 0);
  on_all(comms, [](const Communicator& comm) { return comm.finalize(); });
}
