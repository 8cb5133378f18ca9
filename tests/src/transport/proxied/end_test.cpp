// Buffers of ends over a network.
#include <iostream>

#include "support/fake_verbs.hpp"
#include "support/memory_policy.hpp"
#include "support/two_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("both ends ask for their buffers on the NUMA node of their rank") {
  if (!may_prefer_nodes()) {
    std::cout << "SKIP: this process may not ask for memory of a NUMA node\n";
    return;
  }
  const FakeVerbs fabric{1};
  const int numa = GENERATE(-1, 0);
  const OneEdge edge{{2, 4, 4096}, {}, numa};
  for (const Connection* end : {&*edge.out, &*edge.in}) {
    for (const Wire& wire : end->wires) CHECK(preferred_node(wire.slots) == numa);
  }
}
