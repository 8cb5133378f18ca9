#include <ccl/proto/ll.hpp>

#include "support/plug_in_suite.hpp"

TEST_CASE("LL: every collective, algorithm and transport") {
  ccl::test::run_protocol_suite<ccl::LL>();
}

TEST_CASE("LL: every collective over the newest and the oldest network plug-in") {
  ccl::test::run_protocol_over_plug_in<ccl::LL>(12);
  ccl::test::run_protocol_over_plug_in<ccl::LL>(9);
}
