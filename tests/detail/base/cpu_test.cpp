#include <ccl/detail/base/cpu.hpp>

#include <cstring>
#include <vector>

#include "support/catch.hpp"

TEST_CASE("copy_away copies the given bytes and nothing else") {
  for (const std::size_t bytes : {0, 1, 7, 255, 256, 257, 1000, 4096, 20'001}) {
    for (const std::size_t shift : {0, 1, 8, 63}) {
      std::vector<char> from(bytes + 2 * shift + 1), to(bytes + 2 * shift + 1, 'x');
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = char(i * 7 + bytes);
      std::vector<char> want = to;
      std::memcpy(want.data() + shift, from.data() + shift / 2, bytes);
      ccl::detail::copy_away(to.data() + shift, from.data() + shift / 2, bytes);
      INFO(bytes << " bytes to an offset of " << shift);
      CHECK(to == want);
    }
  }
}

TEST_CASE("the clock of the CPU goes on") {
  const auto begin = ccl::detail::cpu_ticks();
  while (ccl::detail::cpu_ticks() == begin) ccl::detail::cpu_relax();
  CHECK(ccl::detail::cpu_ticks() > begin);
}
