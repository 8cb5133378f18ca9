#include <ccl/detail/base/cpu.hpp>

#include "support/catch.hpp"

TEST_CASE("the clock of the CPU goes on") {
  const auto begin = ccl::detail::cpu_ticks();
  while (ccl::detail::cpu_ticks() == begin) ccl::detail::cpu_relax();
  CHECK(ccl::detail::cpu_ticks() > begin);
}
