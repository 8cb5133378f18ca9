#include "bootstrap/members/host_tree.hpp"

#include <set>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {
std::vector<RankPlace> places(int ranks, int hosts) {
  std::vector<RankPlace> all(std::size_t(ranks), RankPlace{});
  for (int r = 0; r < ranks; ++r) {
    all[std::size_t(r)].rank = r;
    all[std::size_t(r)].host_hash = std::uint64_t(1000 - r % hosts);  // around the hosts
  }
  return all;
}
}  // namespace

TEST_CASE("a tree of all hosts holds each rank once, with few children and levels") {
  for (const auto& [ranks, hosts] :
       {std::pair{1, 1}, {2, 1}, {9, 1}, {100, 1}, {100, 7}, {64, 64}, {1024, 32}}) {
    INFO(ranks << " ranks, " << hosts << " hosts");
    const auto of = places(ranks, hosts);
    int roots = 0;
    for (int r = 0; r < ranks; ++r) {
      const HostTree tree{of, r};
      roots += int(tree.parent < 0);
      CHECK(tree.below.size() <= 2 * HostTree::fan_out);
      std::set<int> below;
      for (const auto& ranks_of : tree.below) {
        // A child has this rank as its parent, and its own ranks in the same order.
        const HostTree child{of, ranks_of[0]};
        CHECK(child.parent == r);
        std::vector<int> wanted{ranks_of[0]};
        for (const auto& more : child.below) wanted.insert(wanted.end(), more.begin(), more.end());
        CHECK(ranks_of == wanted);
        for (const int rank : ranks_of) CHECK(below.insert(rank).second);
      }
      if (tree.parent < 0) CHECK(int(below.size()) == ranks - 1);
      int depth = 0;
      for (int up = tree.parent; up >= 0 && depth < 100; up = HostTree{of, up}.parent) ++depth;
      CHECK(depth <= 8);
      if (ranks > 200 && r > 100) break;
    }
    CHECK(roots == 1);
  }
}

TEST_CASE("only the first rank of a host has a parent on another") {
  const int ranks = 60, hosts = 12;
  const auto of = places(ranks, hosts);
  for (int r = 0; r < ranks; ++r) {
    const int parent = HostTree{of, r}.parent;
    if (r >= hosts) CHECK(of[std::size_t(parent)].host_hash == of[std::size_t(r)].host_hash);
  }
}
