#include <ccl/detail/base/copies.hpp>
#include <ccl/detail/base/cpu.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include "support/catch.hpp"

TEST_CASE("copies have the given bytes and nothing else") {
  using ccl::detail::copy_away, ccl::detail::copy_here, ccl::detail::copy_past_caches;
  for (const auto copy : {&copy_away, &copy_here, &copy_past_caches}) {
    for (const std::size_t bytes : {0, 1, 7, 255, 256, 257, 1000, 4096, 20'001, 9 << 20}) {
      for (const std::size_t shift : {0, 1, 8, 63}) {
        std::vector<char> from(bytes + 2 * shift + 1), to(bytes + 2 * shift + 1, 'x');
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = char(i * 7 + bytes);
        std::vector<char> want = to;
        std::memcpy(want.data() + shift, from.data() + shift / 2, bytes);
        copy(to.data() + shift, from.data() + shift / 2, bytes);
        INFO(bytes << " bytes to an offset of " << shift);
        CHECK((to == want));
      }
    }
  }
}

TEST_CASE("copy_away is right and as fast at every distance within a page") {
  constexpr std::size_t page = 4096, bytes = 5 * page + 77;
  std::vector<char> memory(4 * bytes);
  char* const from = memory.data();
  for (std::size_t i = 0; i < bytes; ++i) from[i] = char(i * 31 + i / 251);
  const auto best_of = [&](char* to) {
    unsigned long long best = ~0ull;
    for (int n = 0; n < 20; ++n) {
      const auto begin = ccl::detail::cpu_ticks();
      ccl::detail::copy_away(to, from, bytes);
      best = std::min(best, ccl::detail::cpu_ticks() - begin);
    }
    return best;
  };
  const auto usual = best_of(from + 8 * page + 512);
  for (const std::size_t distance : {0, 1, 16, 31, 32, 33, 64, 2048, 4064, 4095}) {
    char* const to = from + 8 * page + distance;
    std::fill(to - 1, to + bytes + 1, 'x');
    const auto took = best_of(to);
    INFO("distance " << distance << ": " << took << " ticks, and " << usual << " at 512");
    CHECK(std::memcmp(to, from, bytes) == 0);
    CHECK((to[-1] == 'x' && to[bytes] == 'x'));
    CHECK(took < 8 * usual);  // 15 to 28 times as long, where string stores collide
  }
}
