#include <ccl/proto/ll128.hpp>

#include "support/plug_in_suite.hpp"

TEST_CASE("LL128: every collective, algorithm and transport") {
  ccl::test::run_protocol_suite<ccl::LL128>();
}

TEST_CASE("LL128: every collective over a network plug-in") {
  ccl::test::run_protocol_over_plug_in<ccl::LL128>(10, {3});
}
