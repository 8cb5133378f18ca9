#include <ccl/algo/ring.hpp>
#include <ccl/detail/wire/landings.hpp>
#include <ccl/types/position.hpp>

#include <vector>

#include "support/catch.hpp"

namespace ccl::test {
using detail::Landings;

namespace {

/// A rank of three, with slices of 100 elements and chunks of 200.
struct Context {
  int at = 0;
  Index count = 0;
  int order[3] = {0, 1, 2};
  RingPosition ring() const { return {at, 3, order}; }
  int root() const { return 0; }
  int rank() const { return at; }
  int ranks() const { return 3; }
  Chunks chunks(int shares) const { return {Layout{count, 0, 0, true}, shares, 0, 1, 200, 1}; }
  Index slice_capacity() const { return 100; }
};

using Slices = std::vector<std::pair<Index, int>>;
Slices slices(Landings& all) {
  Slices out;
  for (; all.at(0) != nullptr; all.advance()) out.emplace_back(all.at(0)->out, all.at(0)->count);
  return out;
}

/// The slices that a ring receives; none if no slice has a place.
template <class Op>
Slices listed(const Context& of) {
  detail::LandingTable table;
  detail::LandingContext<Context> context{of, table};
  Ring::run(Op{}, context);
  Landings* const all = table.of(of.ring().prev());
  return all != nullptr ? slices(*all) : Slices{};
}
struct Silent {};
struct Refuses {
  static constexpr bool lands_ahead = false;
};

}  // namespace

TEST_CASE("a list gives the next slices and those ahead, and begins once") {
  Landings all;
  CHECK(!all.any());
  CHECK(all.at(0) == nullptr);
  for (int n = 1; n < 4; ++n) CHECK(all.add({10 * n, n}));
  CHECK(all.any());
  CHECK(all.begin());
  CHECK(!all.begin());
  REQUIRE(all.at(2) != nullptr);
  CHECK(all.at(2)->out == 30);
  CHECK(all.at(3) == nullptr);
  all.advance();
  CHECK(all.at(0)->out == 20);
  CHECK(all.at(2) == nullptr);
}

TEST_CASE("a ring lists what it reduces without a place, and what it only stores with one") {
  // Two rounds: shares of 200 elements, then of 50.
  // Partial sums of the share before this rank's and of its own; then the finished shares.
  CHECK(listed<AllReduce>({1, 750}) == Slices{{400, 0},
                                              {500, 0},
                                              {200, 0},
                                              {300, 0},
                                              {0, 100},
                                              {100, 100},
                                              {400, 100},
                                              {500, 100},
                                              {700, 0},
                                              {650, 0},
                                              {600, 50},
                                              {700, 50}});
}

TEST_CASE("a chain's last rank stores all, and its root receives nothing") {
  CHECK(listed<Broadcast>({2, 250}) == Slices{{0, 100}, {100, 100}, {200, 50}});
  CHECK(listed<Broadcast>({0, 250}).empty());
  CHECK(listed<Reduce>({0, 250}).empty());  // reduces all that it receives
}

TEST_CASE("each peer has a list of its own, and has none if its steps add up several peers") {
  detail::LandingTable table;
  detail::LandingPrims<1> one{table, {{4}}, 100}, other{table, {{7}}, 100};
  one.recv({0, 0, 150});
  other.recv_copy_send({0, 500, 60});
  one.recv_reduce_send({0, 0, 30});
  REQUIRE(table.of(4) != nullptr);
  REQUIRE(table.of(7) != nullptr);
  CHECK(table.of(5) == nullptr);
  CHECK(slices(*table.of(4)) == Slices{{0, 100}, {100, 50}, {0, 0}});
  CHECK(slices(*table.of(7)) == Slices{{500, 60}});
  detail::LandingPrims<2> both{table, {{7, -1}}, 100};
  both.recv_reduce_copy({0, 0, 100});
  CHECK(table.of(7) == nullptr);
  CHECK(table.of(4) != nullptr);
  detail::LandingPrims<1> sums{table, {{9}}, 100};
  sums.recv_reduce_copy({0, 0, 100});
  CHECK(table.of(9) == nullptr);  // no slice has a place
}

TEST_CASE("only algorithms that say so land ahead") {
  STATIC_REQUIRE(detail::lands_ahead<Ring>);
  STATIC_REQUIRE(!detail::lands_ahead<Silent>);
  STATIC_REQUIRE(!detail::lands_ahead<Refuses>);
}

}  // namespace ccl::test
