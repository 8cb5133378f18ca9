#include <ccl/algo/ordered_tree.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <tuple>
#include <vector>

#include "catch.hpp"
#include "world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Protos = std::tuple<LL, LL128, Simple>;

/// x -> factor * x + term, and one after the other: associative, and the order tells.
struct Affine {
  unsigned factor, term;
  friend bool operator==(const Affine&, const Affine&) = default;
};
struct Then {
  static constexpr bool commutative = false;
  Affine operator()(const Affine& a, const Affine& b) const {
    return {a.factor * b.factor, a.term * b.factor + b.term};
  }
};
/// The ranks below a node, itself first.
void collect(int node, int ranks, std::vector<int>& found) {
  found.push_back(node);
  const TreeSeat at = OrderedTree::seat(node, ranks);
  for (const int child : at.down) {
    if (child < 0) continue;
    REQUIRE(OrderedTree::seat(child, ranks).up == node);
    REQUIRE(OrderedTree::seat(child, ranks).near == at.near + 1);
    collect(child, ranks, found);
  }
}
}  // namespace

TEST_CASE("a node is followed by those below its first child, then by those below its second") {
  for (int ranks = 1; ranks <= 130; ++ranks) {
    std::vector<int> found;
    collect(0, ranks, found);
    REQUIRE(OrderedTree::seat(0, ranks).is_root());
    REQUIRE(int(found.size()) == ranks);
    for (int r = 0; r < ranks; ++r) REQUIRE(found[std::size_t(r)] == r);
    REQUIRE(OrderedTree::seat(ranks - 1, ranks).near <= detail::doublings(ranks + 1));
  }
}

TEMPLATE_LIST_TEST_CASE("ordered tree: a functor that is not commutative meets the ranks in order",
                        "", Protos) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    World world{ranks, 2, 8, 512};
    const Reduction<Then, Affine> then{Then{}, ranks};
    for (const Index count : {0, 1, 63, 5001}) {
      INFO(TestType::name << " ranks " << ranks << " count " << count);
      std::vector<std::vector<Affine>> in(ranks, std::vector<Affine>(count)), out = in;
      std::vector<Affine> want(count, Affine{1, 0});
      for (int r = 0; r < ranks; ++r) {
        for (Index i = 0; i < count; ++i) {
          in[r][i] = {unsigned(i * 2 + r * 6 + 3), unsigned(i * 7 + r * r)};
          want[i] = Then{}(want[i], in[r][i]);
        }
      }
      const auto run = [&](auto group) {
        return world.run<AllReduce, OrderedTree, TestType, decltype(group)>(
            then, 1, 2, 0, [&](int r, auto& w) {
              w.input = in[r].data();
              w.output = out[r].data();
              w.layout = {count, 0, 0, false};
            });
      };
      REQUIRE(run(SoloLane{}));
      for (int r = 0; r < ranks; ++r) REQUIRE(out[r] == want);
    }
  }
}
