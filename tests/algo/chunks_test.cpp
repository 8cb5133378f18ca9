#include <ccl/algo/chunks.hpp>

#include "support/catch.hpp"

using namespace ccl;

namespace {
/// Every element in exactly one channel, round and share; checked by sums, so that it is quick.
void covers(Index count, int shares, int channels, Index chunk, Index grain, bool split) {
  INFO(count << " elements, " << shares << " shares, " << channels << " channels, split " << split);
  const Layout layout{count, split ? 0 : count, split ? 0 : count, split};
  Index elements = 0, rounds = 0;
  Index next = 0;  // channels and rounds follow each other without gaps
  for (int c = 0; c < channels; ++c) {
    Chunks chunks{layout, shares, c, channels, chunk, grain};
    while (chunks.next()) {
      ++rounds;
      REQUIRE(rounds < 10'000'000);
      if (split) {
        for (int s = 0; s < shares; ++s) {
          const Part p = chunks.share(s);
          REQUIRE(p.in == p.out);
          REQUIRE((p.count >= 0 && p.count <= chunk));
          if (p.count > 0) {
            REQUIRE(p.in == next);
            REQUIRE(p.in % grain == 0);
            next += p.count;
          }
          elements += p.count;
        }
      } else {
        const Part first = chunks.share(0), last = chunks.share(shares - 1);
        REQUIRE(first.in == next);
        REQUIRE(last.in == (shares - 1) * count + next);
        REQUIRE(last.out == last.in);
        REQUIRE((first.count > 0 && first.count <= chunk && last.count == first.count));
        next += first.count;
        elements += first.count;
      }
    }
  }
  CHECK(elements == count);
}
}  // namespace

TEST_CASE("chunks cover a message once, with no gap") {
  for (const bool split : {true, false}) {
    for (const Index count : {0, 1, 31, 32, 33, 1000, 4096, 65'537}) {
      for (const int shares : {1, 2, 3, 8}) {
        for (const int channels : {1, 2, 7}) covers(count, shares, channels, 96, 32, split);
      }
    }
  }
}

TEST_CASE("chunks of messages beyond 4 GiB are exact") {
  for (const bool split : {true, false}) {
    for (const Index count : {(Index{1} << 32) + 1, (Index{3} << 33) + 12'345, Index{1} << 40}) {
      for (const int shares : {1, 8, 1000}) covers(count, shares, 3, Index{1} << 24, 128, split);
    }
  }
}

TEST_CASE("whole rounds are skipped as if each was taken") {
  for (const bool split : {true, false}) {
    for (const Index count : {0, 1, 96, 97, 4096, 65'537}) {
      for (const int shares : {1, 3}) {
        const Layout layout{count, count, count, split};
        Chunks skips{layout, shares, 1, 2, 96, 32}, steps = skips;
        while (skips.next()) {
          REQUIRE(steps.next());
          const Index whole = skips.full_rounds();
          if (whole > 0) skips.skip(whole);
          for (Index n = 0; n < whole; ++n) {
            REQUIRE(steps.next());
            REQUIRE(steps.share(shares - 1).count == 96);
          }
          REQUIRE(skips.share(shares - 1).in == steps.share(shares - 1).in);
          REQUIRE(skips.share(shares - 1).count == steps.share(shares - 1).count);
          REQUIRE(skips.full_rounds() == 0);
        }
        REQUIRE_FALSE(steps.next());
      }
    }
  }
}

static_assert([] {
  Chunks chunks{{10, 0, 0, true}, 3, 0, 1, 4, 1};
  return chunks.next() && chunks.share(2).in == 8 && chunks.share(2).count == 2 && !chunks.next();
}());
