#include <ccl/proto/ll.hpp>

#include "support/collective_suite.hpp"

TEST_CASE("LL: every collective, algorithm and transport") {
  ccl::test::run_protocol_suite<ccl::LL>();
}
