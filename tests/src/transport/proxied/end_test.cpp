// Buffers of ends over a network.
#include "transport/proxied/end.hpp"

#include <iostream>

#include "support/fake_verbs.hpp"
#include "support/memory_policy.hpp"
#include "support/skip.hpp"
#include "support/two_ranks.hpp"
#include "transport/ib/link.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("both ends ask for their buffers on the NUMA node of their rank") {
  if (!may_prefer_nodes()) return skip("this process may not ask for memory of a NUMA node");
  const FakeVerbs fabric{1};
  const int numa = GENERATE(-1, 0);
  const OneEdge edge{{2, 4, 4096}, {}, numa};
  for (const Connection* end : {&*edge.out, &*edge.in}) {
    for (const Wire& wire : end->wires) CHECK(preferred_node(wire.slots) == numa);
  }
}

TEST_CASE("the error of an end names its peer, unless a third rank is at fault") {
  Lent lent;
  detail::ProxiedBody<detail::IbLink> body;
  body.link->context = lent.context;
  body.link->edge.self.rank = 0;
  body.link->edge.peer.rank = 1;
  const auto peer_of = [&body](int at_fault) {
    return body.in_context({Errc::timed_out, "rank 1 gave up", -1, at_fault}).peer;
  };
  CHECK(peer_of(-1) == 1);
  CHECK(peer_of(1) == 1);
  CHECK(peer_of(7) == 7);
}
