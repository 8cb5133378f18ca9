#include <ccl/algo/ordered_tree.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <tuple>
#include <vector>

#include "support/affine.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Protos = std::tuple<LL, LL128, Simple>;

/// The ranks below a node, itself first.
void collect(int node, int ranks, std::vector<int>& found) {
  found.push_back(node);
  const TreePosition at = OrderedTree::position(node, ranks);
  for (const int child : at.down) {
    if (child < 0) continue;
    REQUIRE(OrderedTree::position(child, ranks).up == node);
    REQUIRE(OrderedTree::position(child, ranks).near == at.near + 1);
    collect(child, ranks, found);
  }
}
}  // namespace

TEST_CASE("a node is followed by those below its first child, then by those below its second") {
  for (int ranks = 1; ranks <= 130; ++ranks) {
    std::vector<int> found;
    collect(0, ranks, found);
    REQUIRE(OrderedTree::position(0, ranks).is_root());
    REQUIRE(int(found.size()) == ranks);
    for (int r = 0; r < ranks; ++r) REQUIRE(found[std::size_t(r)] == r);
    REQUIRE(OrderedTree::position(ranks - 1, ranks).near <= detail::doublings(ranks + 1));
  }
}

TEMPLATE_LIST_TEST_CASE("ordered tree: a functor that is not commutative meets the ranks in order",
                        "", Protos) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    World world{ranks, 2, 8, 512};
    const detail::Reduction<Then, Affine> then{Then{}, ranks};
    for (const Index count : {0, 1, 63, 5001}) {
      std::vector<std::vector<Affine>> in(ranks, std::vector<Affine>(count)), out = in;
      std::vector<Affine> want(count, Affine{1, 0});
      for (int r = 0; r < ranks; ++r) {
        for (Index i = 0; i < count; ++i) {
          in[r][i] = affine_of(r, i);
          want[i] = Then{}(want[i], in[r][i]);
        }
      }
      const auto buffers = [&](int r, auto& w) {
        w.input = in[r].data();
        w.output = out[r].data();
        w.layout = {count, 0, 0, false};
      };
      INFO(TestType::name << " ranks " << ranks << " count " << count);
      REQUIRE(
          world.run<AllReduce, OrderedTree, TestType, detail::SoloLane>(then, 1, 2, 0, buffers));
      for (int r = 0; r < ranks; ++r) REQUIRE(out[r] == want);
      const std::vector<Affine> untouched(count, Affine{7, 7});
      for (int root = 0; root < ranks; ++root) {
        INFO("root " << root);
        for (auto& o : out) o = untouched;
        REQUIRE(
            world.run<Reduce, OrderedTree, TestType, detail::SoloLane>(then, 1, 2, root, buffers));
        for (int r = 0; r < ranks; ++r) REQUIRE(out[r] == (r == root ? want : untouched));
      }
      // A call in place, to a root that is neither the tree's root nor its last leaf.
      const int root = ranks / 2;
      REQUIRE(world.run<Reduce, OrderedTree, TestType, detail::SoloLane>(
          then, 1, 2, root, [&](int r, auto& w) {
            buffers(r, w);
            if (r == root) w.output = in[r].data();
          }));
      REQUIRE(in[root] == want);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("ordered tree: the result that goes on to a root is an average", "",
                        Protos) {
  const int ranks = 5;
  const Index count = 700;
  World world{ranks, 1, 8, 512};
  const detail::Reduction<Avg, float> avg{Avg{}, ranks};
  for (int root = 0; root < ranks; ++root) {
    std::vector<std::vector<float>> in(ranks), out(ranks, std::vector<float>(count));
    for (int r = 0; r < ranks; ++r) in[r].assign(count, float(r * ranks));
    REQUIRE(world.run<Reduce, OrderedTree, TestType, detail::SoloLane>(
        avg, 1, 1, root, [&](int r, auto& w) {
          w.input = in[r].data();
          w.output = out[r].data();
          w.layout = {count, 0, 0, false};
        }));
    REQUIRE(out[root] == std::vector<float>(count, float(ranks * (ranks - 1)) / 2));
  }
}
