#include <ccl/proto/ll.hpp>

#include "support/plug_in_suite.hpp"

TEST_CASE("LL: every collective, algorithm and transport") {
  ccl::test::run_protocol_suite<ccl::LL>();
}

TEST_CASE("LL: every collective over a network plug-in") {
  ccl::test::run_protocol_over_plug_in<ccl::LL>(11, {3});
}
