#include <ccl/proto/simple.hpp>

#include "support/collective_suite.hpp"

TEST_CASE("Simple: every collective, algorithm and transport") {
  ccl::test::run_protocol_suite<ccl::Simple>();
}
