// Proves Tree at compile time for 2 to 17 ranks: complete, nothing counted twice, no deadlock.
#include <ccl/algo/tree.hpp>

#include "algo/symbolic.hpp"
#include "catch.hpp"

using namespace ccl;
using namespace ccl::test;

template <int Ranks>
constexpr bool proved =
    plays<AllReduce, Tree>(Ranks, 8, 0, 0) && plays<AllReduce, Tree>(Ranks, 8, 0, 1) &&
    plays<Broadcast, Tree>(Ranks, 1, Ranks - 1) && plays<Reduce, Tree>(Ranks, 1, Ranks / 2);
static_assert(proved<2> && proved<3> && proved<4> && proved<5> && proved<6>);
static_assert(proved<7> && proved<8> && proved<9> && proved<10> && proved<11>);
static_assert(proved<12> && proved<13> && proved<14>);
static_assert(proved<15> && proved<16> && proved<17>);

TEST_CASE("tree: proved at compile time for 2 to 17 ranks") {
  SUCCEED();
}

TEST_CASE("every rank but the roots is a leaf of at least one of the two trees") {
  for (int ranks = 2; ranks <= 17; ++ranks) {
    for (int r = 0; r < ranks; ++r) {
      const auto a = double_binary_tree(r, ranks, 0, 0), b = double_binary_tree(r, ranks, 0, 1);
      INFO("rank " << r << " of " << ranks);
      CHECK((a.is_leaf() || b.is_leaf() || a.is_root() || b.is_root()));
    }
  }
}
