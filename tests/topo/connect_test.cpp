#include <ccl/topo/connect.hpp>
#include <ccl/topo/search.hpp>

#include <chrono>
#include <ctime>
#include <iostream>

#include "support/catch.hpp"

namespace topo = ccl::topo;

namespace {

/// Time of this process alone: the machine may be busy with others.
std::chrono::duration<double> cpu_now() {
  return std::chrono::duration<double>(static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
}

topo::ChannelGraph line(topo::Pattern pattern, int channels, int ranks) {
  topo::ChannelGraph graph;
  graph.pattern = pattern;
  for (int c = 0; c < channels; ++c) {
    topo::ChannelOrder order;
    for (int r = 0; r < ranks; ++r) order.ranks.push_back((r + c) % ranks);
    order.net_in = order.net_out = c;
    graph.channels.push_back(order);
  }
  return graph;
}

}  // namespace

TEST_CASE("binary trees of 1 to 300 nodes are trees, and their twins swap leaves and inner nodes") {
  for (int count = 1; count <= 300; ++count) {
    int inner_in_both = 0;
    for (int tree = 0; tree < 2; ++tree) {
      const auto place = [&](int n) {
        return tree == 0 ? topo::binary_tree(n, count) : topo::binary_twin(n, count);
      };
      int roots = 0, children = 0;
      for (int n = 0; n < count; ++n) {
        const topo::BinaryPlace at = place(n);
        if (at.parent < 0) ++roots;
        if (at.parent >= 0 && place(at.parent).child[at.as_child] != n) FAIL(count << " " << n);
        for (int c = 0; c < 2; ++c) {
          if (at.child[c] < 0) continue;
          ++children;
          if (place(at.child[c]).parent != n) FAIL(count << " " << n);
        }
        int depth = 0;
        for (int up = n; up >= 0 && depth < 100; up = place(up).parent) ++depth;
        if ((1 << (depth - 2)) > count) FAIL(count << ": node " << n << " at depth " << depth);
      }
      if (roots != 1 || children != count - 1) FAIL(count << " " << roots << " " << children);
    }
    for (int n = 0; n < count; ++n) {
      const auto inner = [](const topo::BinaryPlace& p) {
        return p.child[0] >= 0 && p.child[1] >= 0;
      };
      inner_in_both +=
          inner(topo::binary_tree(n, count)) && inner(topo::binary_twin(n, count)) ? 1 : 0;
    }
    // Only the shift of odd counts can make one node inner in both.
    if (inner_in_both > (count % 2 == 0 ? 0 : 1)) FAIL(count << " " << inner_in_both);
  }
  SUCCEED();
}

TEST_CASE("rings and trees close over machines for every pattern and count") {
  for (const topo::Pattern pattern :
       {topo::Pattern::tree, topo::Pattern::split_tree, topo::Pattern::balanced_tree}) {
    for (const int each : {1, 2, 3, 8}) {
      for (int count = 1; count <= 20; ++count) {
        for (const int cross : {0, 2}) {
          topo::JoinOptions options;
          options.cross_nic = cross;
          const auto joined = topo::join(
              topo::replicate(line(topo::Pattern::ring, 2, each), line(pattern, 2, each), count),
              each * count, options);
          REQUIRE(joined);
          const std::string wrong = topo::check(*joined, each * count);
          if (!wrong.empty() || joined->count() != 4) {
            FAIL(wrong << " " << static_cast<int>(pattern) << " " << each << " " << count);
          }
        }
      }
    }
  }
  SUCCEED();
}

TEST_CASE("channels that cross NICs keep to their rails") {
  topo::ChannelGraph ring = line(topo::Pattern::ring, 2, 2);
  ring.channels[0] = {{0, 1}, 0, 1};
  ring.channels[1] = {{1, 0}, 1, 0};
  topo::JoinOptions options;
  options.cross_nic = 2;
  const auto joined =
      topo::join(topo::replicate(ring, line(topo::Pattern::tree, 2, 2), 4), 8, options);
  REQUIRE(joined);
  // Machine 0 leaves by rank 1 (NIC 1), machine 1 is entered by its rank 1.
  CHECK(joined->rings[0] == std::vector<int>{0, 1, 3, 2, 4, 5, 7, 6});
}

TEST_CASE("graphs that do not fit are refused") {
  const auto uneven = [] {
    auto machines =
        topo::replicate(line(topo::Pattern::ring, 2, 2), line(topo::Pattern::tree, 2, 2), 2);
    machines[1].ring.pop_back();
    return topo::join(machines, 4);
  }();
  REQUIRE_FALSE(uneven);
  CHECK(uneven.error().code == ccl::Errc::mismatch);
  CHECK_FALSE(topo::join({}, 0));
  CHECK_FALSE(topo::join(
      topo::replicate(line(topo::Pattern::ring, 1, 2), line(topo::Pattern::tree, 1, 2), 2), 3));
}

TEST_CASE("alignment takes the least of all") {
  topo::ChannelGraph a = line(topo::Pattern::balanced_tree, 4, 2),
                     b = line(topo::Pattern::tree, 2, 2);
  a.bw_intra = 20;
  b.bw_intra = 12;
  b.type_intra = topo::PathType::sys;
  const topo::ChannelGraph agreed = topo::align(a, {a, b});
  CHECK(agreed.count() == 2);
  CHECK(agreed.bw_intra == 12);
  CHECK(agreed.type_intra == topo::PathType::sys);
  CHECK(agreed.pattern == topo::Pattern::tree);
}

TEST_CASE("1,024 machines join within a second") {
  const auto machines = topo::replicate(line(topo::Pattern::ring, 16, 8),
                                        line(topo::Pattern::balanced_tree, 16, 8), 1024);
  const auto start = cpu_now();
  const auto joined = topo::join(machines, 8192);
  const std::chrono::duration<double> took = cpu_now() - start;
  REQUIRE(joined);
  CHECK(topo::check(*joined, 8192) == "");
  CHECK(took.count() < 1);
  std::cout << "1,024 machines of 8 ranks, 32 channels: joined in " << took.count() * 1e3
            << " ms\n";
}
