// Proves OrderedTree at compile time for 2 to 17 ranks: complete, nothing counted twice, no
// deadlock. More ranks and every root at run time.
#include <ccl/algo/ordered_tree.hpp>

#include <set>
#include <vector>

#include "algo/symbolic.hpp"
#include "catch.hpp"

using namespace ccl;
using namespace ccl::test;

template <int Ranks>
constexpr bool proved =
    plays<AllReduce, OrderedTree>(Ranks, 8) && plays<Reduce, OrderedTree>(Ranks, 1, 0) &&
    plays<Reduce, OrderedTree>(Ranks, 1, Ranks / 2) &&
    plays<Reduce, OrderedTree>(Ranks, 2, Ranks - 1);
static_assert(proved<2> && proved<3> && proved<4> && proved<5> && proved<6>);
static_assert(proved<7> && proved<8> && proved<9> && proved<10> && proved<11>);
static_assert(proved<12> && proved<13> && proved<14>);
static_assert(proved<15> && proved<16> && proved<17>);

TEST_CASE("ordered tree: plays to the end at every root, over wires of any length") {
  for (const int ranks : {2, 3, 5, 8, 13, 16, 24, 31}) {
    for (const int slots : {1, 2, 3, 4, 8}) {
      INFO(ranks << " ranks, wires of " << slots);
      CHECK(plays<AllReduce, OrderedTree>(ranks, slots));
      for (int root = 0; root < ranks; ++root) {
        INFO("root " << root);
        CHECK(plays<Reduce, OrderedTree>(ranks, slots, root));
      }
    }
  }
}

TEST_CASE("ordered tree: the root and rank 0 expect each other, whatever the tree's edges") {
  struct Sink {
    int my_rank, rank_count, root_rank;
    std::set<int> in{}, out{};
    int rank() const { return my_rank; }
    int ranks() const { return rank_count; }
    int root() const { return root_rank; }
    void from(int peer) { in.insert(peer); }
    void to(int peer) { out.insert(peer); }
  };
  for (int ranks = 2; ranks <= 40; ++ranks) {
    for (int root = 0; root < ranks; ++root) {
      std::vector<Sink> sinks;
      for (int r = 0; r < ranks; ++r) OrderedTree::peers(sinks.emplace_back(Sink{r, ranks, root}));
      INFO(ranks << " ranks, root " << root);
      if (root > 0) CHECK(sinks[0].out.count(root) == 1);
      for (const Sink& sink : sinks) {
        CHECK(int(sink.in.size()) <= OrderedTree::most_wires(ranks));
        for (const int peer : sink.out) {
          CHECK(sinks[std::size_t(peer)].in.count(sink.my_rank) == 1);
        }
        for (const int peer : sink.in) {
          CHECK(sinks[std::size_t(peer)].out.count(sink.my_rank) == 1);
        }
      }
    }
  }
}
