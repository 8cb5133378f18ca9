#include <ccl/detail/lanes/strip.hpp>

#include <vector>

#include "support/catch.hpp"

using ccl::Index;
using ccl::detail::Strip;

TEST_CASE("a strip's pieces are the bytes of its chunks, each once and in order") {
  for (const Index bytes : {0, 1, 16, 100, 256, 257, 1000, 4096}) {
    for (const Index chunk : {16, 96, 256}) {
      for (const Index stride : {chunk, chunk + 16, 3 * chunk}) {
        for (const unsigned most : {1u, 16u, 64u, 1000u}) {
          CAPTURE(bytes, chunk, stride, most);
          const Strip strip{bytes, chunk, stride};
          std::vector<Index> expected, seen;
          for (Index i = 0; i < bytes; ++i) {
            if (i % stride < chunk) expected.push_back(i);
          }
          for (Strip::Position position; strip.holds(position);) {
            const unsigned size = strip.piece(position, most);
            REQUIRE(size >= 1);
            REQUIRE(size <= most);
            for (unsigned i = 0; i < size; ++i) seen.push_back(position.at + i);
            strip.advance(position, size);
          }
          REQUIRE(seen == expected);
          REQUIRE(strip.total() == Index(expected.size()));
          seen.clear();
          for (Index n = 0; strip.size(n) > 0; ++n) {
            for (Index i = 0; i < strip.size(n); ++i) seen.push_back(strip.begin(n) + i);
          }
          REQUIRE(seen == expected);
        }
      }
    }
  }
}

TEST_CASE("a whole run is a strip of one chunk") {
  const Strip strip = Strip::whole(1000);
  CHECK(strip.total() == 1000);
  CHECK(strip.size(0) == 1000);
  CHECK(strip.size(1) <= 0);
}
