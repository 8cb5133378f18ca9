#if defined(CCL_CATCH2_V3)
#  include <catch2/catch_session.hpp>
#else
#  define CATCH_CONFIG_RUNNER
#  include <catch2/catch.hpp>
#endif

#include <atomic>
#include <iostream>
#include <string_view>

#include "support/skip.hpp"

namespace {
std::atomic<bool> skipped{false};
}

void ccl::test::skip(std::string_view why) {
  skipped = true;
  std::cout << "SKIP: " << why << std::endl;
}

int main(int argc, char** argv) {
  const int failed = Catch::Session().run(argc, argv);
  return failed == 0 && skipped ? 77 : failed;
}
