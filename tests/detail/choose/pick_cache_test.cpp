// Candidates kept for recent sizes.
#include <ccl/detail/choose/pick_cache.hpp>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

TEST_CASE("a candidate is found for its size and constraints, and for no others") {
  PickCache cache;
  for (const Index bytes : {Index{0}, Index{1}, Index{4096}, Index{1} << 46}) {
    for (unsigned constraints = 0; constraints < 16; ++constraints) {
      const auto key = PickCache::key(bytes, constraints);
      CHECK(cache.find(key) == PickCache::none);
      cache.keep(key, int(constraints) - 1);
      CHECK(cache.find(key) == int(constraints) - 1);
      CHECK(cache.find(PickCache::key(bytes + 1, constraints)) == PickCache::none);
      CHECK(cache.find(PickCache::key(bytes, (constraints + 1) % 16)) == PickCache::none);
      cache.clear();
    }
  }
}

TEST_CASE("sizes that share an entry replace each other") {
  PickCache cache;
  int found = 0;
  for (Index bytes = 1; bytes <= 1000; ++bytes)
    cache.keep(PickCache::key(bytes, 0), int(bytes % 100));
  for (Index bytes = 1; bytes <= 1000; ++bytes) {
    const int candidate = cache.find(PickCache::key(bytes, 0));
    if (candidate == PickCache::none) continue;
    ++found;
    CHECK(candidate == int(bytes % 100));
  }
  CHECK(found > 1);
  CHECK(found <= 16);
}

TEST_CASE("calls and candidates that an entry cannot hold are not kept") {
  PickCache cache;
  CHECK(PickCache::key(Index{1} << 47, 0) == 0);
  CHECK(PickCache::key(-1, 0) == 0);
  cache.keep(0, 3);
  CHECK(cache.find(0) == PickCache::none);
  for (const int candidate : {-2, 126, 1000}) {
    cache.keep(PickCache::key(8, 0), candidate);
    CHECK(cache.find(PickCache::key(8, 0)) == PickCache::none);
  }
  cache.keep(PickCache::key(8, 0), 125);
  CHECK(cache.find(PickCache::key(8, 0)) == 125);
  CHECK(PickCache{cache}.find(PickCache::key(8, 0)) == PickCache::none);
}
