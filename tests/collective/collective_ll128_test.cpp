#include <ccl/proto/ll128.hpp>

#include "support/plug_in_suite.hpp"

TEST_CASE("LL128: every collective, algorithm and transport") {
  ccl::test::run_protocol_suite<ccl::LL128>();
}

TEST_CASE("LL128: every collective over the newest and the oldest network plug-in") {
  ccl::test::run_protocol_over_plug_in<ccl::LL128>(12);
  ccl::test::run_protocol_over_plug_in<ccl::LL128>(9);
}
