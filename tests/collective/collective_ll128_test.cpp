#include <ccl/proto/ll128.hpp>

#include "support/collective_suite.hpp"

TEST_CASE("LL128: every collective, algorithm and transport") {
  ccl::test::run_protocol_suite<ccl::LL128>();
}
