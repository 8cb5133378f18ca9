#include <ccl/algo/tree.hpp>

#include "support/brief.hpp"
#include "support/every_protocol.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

TEMPLATE_LIST_TEST_CASE("tree: all-reduce, broadcast, reduce at every rank count", "",
                        EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::max_ranks; ranks += brief ? 3 : 1) {
    World world{ranks, 2, 8, 512};
    for (const Index count : {0, 1, 63, 5001}) {
      check_all_reduce<Tree, Proto, Group>(world, count, 1, false);
      check_rooted<Tree, Proto, Group>(world, count, int(count) % ranks);
    }
  }
}

namespace {
/// Returns the time of an all-reduce of so many chunks among 8 ranks, in multiples of the latency
/// of edges.
double delays_of(int chunks, int slots, std::chrono::microseconds delay) {
  const int ranks = 8;
  const Index count = chunks * 128;
  World world{ranks, 1, slots, 512};
  world.delay(delay);
  const detail::Reduction<Sum, int> sum{Sum{}, ranks};
  std::vector<std::vector<int>> in(ranks, std::vector<int>(count)), out = in;
  std::vector<int> want(count);
  for (int r = 0; r < ranks; ++r) {
    for (Index i = 0; i < count; ++i) want[i] += in[r][i] = int(i * 3 + r * 1000);
  }
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(world.run<AllReduce, Tree, Simple, detail::SoloLane>(sum, 1, 1, 0, [&](int r, auto& w) {
    w.input = in[r].data();
    w.output = out[r].data();
    w.layout = {count, 0, 0, false};
  }));
  const double delays = double((std::chrono::steady_clock::now() - begin) / delay);
  for (int r = 0; r < ranks; ++r) REQUIRE(out[r] == want);
  return delays;
}
}  // namespace

TEST_CASE("tree: wires of chunks are under way on every edge, whatever its latency") {
  // Deepest rank at three edges: one chunk for each round trip of the tree is six delays a chunk.
  const int slots = 8, chunks = 64;
  double delays = 0;
  // Ranks that wait for a core wait less, in delays, where these are longer.
  for (std::chrono::milliseconds delay{4}; delay.count() <= 64; delay *= 2) {
    delays = delays_of(chunks, slots, delay);
    // A wire's chunks for each round trip of an edge, and the tree once up and down.
    CHECK(delays >= 2.0 * chunks / slots + 4);
    if (delays < 2.0 * chunks) break;
  }
  INFO(delays << " delays");
  CHECK(delays < 2.0 * chunks);
  if (std::getenv("CCL_TEST_SHOW") != nullptr) WARN(delays << " delays for " << chunks);
}

TEST_CASE("a wide element crosses every protocol whole") {
  struct Wide {
    double value;
    int64_t index;
    float weight;
  };
  struct Later {
    Wide operator()(const Wide& a, const Wide& b) const { return a.value < b.value ? b : a; }
  };
  const int ranks = 3;
  const Index count = 333;
  World world{ranks, 1, 8, 2048};
  const detail::Reduction<Later, Wide> later{Later{}, ranks};
  std::vector<std::vector<Wide>> in(ranks, std::vector<Wide>(count)), out = in;
  for (int r = 0; r < ranks; ++r) {
    for (Index i = 0; i < count; ++i) in[r][i] = {double((i * 5 + r * 7) % 11), r, float(i)};
  }
  const auto buffers = [&](int r, auto& w) {
    w.input = in[r].data();
    w.output = out[r].data();
    w.layout = {count, 0, 0, false};
  };
  const auto check = [&] {
    for (int r = 0; r < ranks; ++r) {
      for (Index i = 0; i < count; ++i) {
        double best = -1;
        for (int s = 0; s < ranks; ++s) best = std::max(best, in[s][i].value);
        REQUIRE(out[r][i].value == best);
        REQUIRE(in[out[r][i].index][i].value == best);
        REQUIRE(out[r][i].weight == float(i));
      }
      std::fill(out[r].begin(), out[r].end(), Wide{});
    }
  };
  REQUIRE(world.run<AllReduce, Tree, LL, detail::SoloLane>(later, 1, 1, 0, buffers));
  check();
  World lines{ranks, 1, 8, 2048};
  REQUIRE(lines.run<AllReduce, Tree, LL128, detail::SoloLane>(later, 1, 1, 0, buffers));
  check();
  World wide_lines{ranks, 1, 8, 2048};
  REQUIRE(wide_lines.run<AllReduce, Tree, LL128, detail::ThreadLanes<8>>(later, 1, 1, 0, buffers));
  check();
  World arrays{ranks, 1, 8, 2048};
  REQUIRE(arrays.run<AllReduce, Tree, Simple, detail::SoloLane>(later, 1, 1, 0, buffers));
  check();
}
