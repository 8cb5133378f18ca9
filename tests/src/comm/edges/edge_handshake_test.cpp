#include "comm/edges/edge_handshake.hpp"

#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/any_of.hpp>

#include <cstdlib>
#include <string>

#include "comm/state.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("the error of ranks with different transports names them and the reason") {
  using Over = AnyOf<ShmTransport, SocketTransport>;
  const auto one_without_shm = [](int r) {
    if (r == 1) ::setenv("CCL_SHM_DISABLE", "1", 1);
  };
  const bool late = GENERATE(false, true);  // at the first call that has a message
  const auto sum = [late](const Communicator& comm) -> Answer {
    if (late) {
      CCL_TRY(const auto pairs, (Collective<SendRecv, Pairwise, Simple, Over>::create(comm)));
      int x = 0;
      CCL_CHECK(comm.rank() == 0 ? pairs.send(&x, 1, 1) : pairs.recv(&x, 1, 0));
    } else {
      CCL_CHECK((Collective<AllReduce, Tree, Simple, Over>::create(comm)));
    }
    return "made";
  };
  for (const std::string& said : run(2, one_without_shm, sum, false)) {
    INFO(said);
    CHECK(said.find("mismatch") != std::string::npos);
    const bool names_both =
        said.find("rank 0 takes shm between the two and rank 1 socket") != said.npos ||
        said.find("rank 1 takes socket between the two and rank 0 shm") != said.npos;
    CHECK(names_both);
    CHECK(said.find("CCL_SHM_DISABLE") != std::string::npos);
  }
}

TEST_CASE("what an end says of its transport is compared whole") {
  CHECK(detail::check_same_transport({{}, "socket"}, 1, "socket", 0).has_value());
  CHECK_FALSE(detail::check_same_transport({{}, "sock"}, 1, "socket", 0).has_value());
  CHECK_FALSE(detail::check_same_transport({}, 1, "socket", 0).has_value());
  CHECK(detail::check_same_transport({{}, "a_transport_with_a_long_name"}, 1,
                                     "a_transport_with_a_long_name", 0)
            .has_value());
}

TEST_CASE("connections have the traffic class of their communicator") {
  Config config;
  config.device = Config::cpu;
  const auto plain = Communicator::create_all(2, config);
  config.traffic_class = 8;
  const auto all = Communicator::create_all(2, config);
  REQUIRE((plain && all));
  const auto class_of = [](const Communicator& comm) {
    return detail::transport_context(*detail::Access::state(comm), nullptr).traffic_class;
  };
  CHECK(class_of(plain->front()) == -1);
  CHECK(class_of(all->back()) == 8);
}
