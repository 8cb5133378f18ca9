#include "base/numa.hpp"

#include <iostream>

#include "base/io/mapping.hpp"
#include "support/catch.hpp"
#include "support/memory_policy.hpp"
#include "support/skip.hpp"

using namespace ccl::detail;
using namespace ccl::test;

TEST_CASE("memory is asked for on a NUMA node that is there") {
  if (!may_prefer_nodes()) return skip("this process may not ask for memory of a NUMA node");
  const auto made = Mapping::anonymous(1 << 16);
  REQUIRE(made);
  CHECK(preferred_node(made->base()) == -1);
  prefer_node(made->base(), made->bytes(), -1);
  prefer_node(made->base(), made->bytes(), 1000);  // no machine of these tests has it
  prefer_node(made->base(), made->bytes(), 1 << 20);
  CHECK(preferred_node(made->base()) == -1);
  prefer_node(made->base(), made->bytes(), 0);
  CHECK(preferred_node(made->base()) == 0);
  CHECK(preferred_node(made->base() + made->bytes() - 1) == 0);
}
