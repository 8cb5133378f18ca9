#include <ccl/proto/simple.hpp>

#include "support/plug_in_suite.hpp"

TEST_CASE("Simple: every collective, algorithm and transport") {
  ccl::test::run_protocol_suite<ccl::Simple>();
}

TEST_CASE("Simple: every collective over the newest and the oldest network plug-in") {
  ccl::test::run_protocol_over_plug_in<ccl::Simple>(12, {2, 4});
  ccl::test::run_protocol_over_plug_in<ccl::Simple>(9, {3});
}
