#include <ccl/algo/collnet_chain.hpp>

#include "support/every_protocol.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
/// Returns the results of an all-reduce of all ranks, which must be equal.
template <class Group, class F, class T>
std::vector<T> all_reduced(World& world, const detail::Reduction<F, T>& reduction,
                           const std::vector<std::vector<T>>& in, int slice_steps = 1) {
  const Index count = Index(in[0].size());
  auto out = in;
  REQUIRE(world.run<AllReduce, CollNetChain, Simple, Group>(reduction, slice_steps, slice_steps, 0,
                                                            [&](int r, auto& w) {
                                                              w.input = in[std::size_t(r)].data();
                                                              w.output = out[std::size_t(r)].data();
                                                              w.layout = {count, 0, 0, true};
                                                            }));
  for (const auto& one : out) {
    REQUIRE(std::memcmp(one.data(), out[0].data(), std::size_t(count) * sizeof(T)) == 0);
  }
  return out[0];
}
/// Numbers whose sums are exact in all types.
template <class T>
std::vector<std::vector<T>> small_numbers(int ranks, Index count) {
  std::vector<std::vector<T>> in{std::size_t(ranks)};
  for (int r = 0; r < ranks; ++r) {
    for (Index i = 0; i < count; ++i) in[std::size_t(r)].push_back(T(float((i + r) % 4 + 1)));
  }
  return in;
}
}  // namespace

TEST_CASE("CollNetChain: sums on hosts of every size, with a head for each channel") {
  const std::vector<HostSizes> jobs{{{1, 1}},          {{2, 2}},       {{3, 1, 2}},
                                    {{1, 1, 1, 1, 1}}, {{4, 2}, true}, {{2, 2, 2, 2}, true}};
  for (const HostSizes& hosts : jobs) {
    const int ranks = std::accumulate(hosts.ranks.begin(), hosts.ranks.end(), 0);
    World world{ranks, 3, 4, 512};
    NetworkRails& network = world.add_network(hosts, 1);
    for (const Index count : {0, 1, 63, 5001}) {
      check_all_reduce<CollNetChain, Simple, detail::SoloLane>(world, count, 1, count == 63);
      check_all_reduce<CollNetChain, Simple, detail::ThreadLanes<8>>(world, count, 2, count == 1);
    }
    CHECK(network.steps() > 2 * 5001 * 4 / 512);
    CHECK(network.wrong() == 0);
  }
}

TEMPLATE_TEST_CASE("CollNetChain: an average is divided when the sum comes back", "", float,
                   std::int32_t, float16) {
  const int ranks = 4;
  const Index count = 777;
  const auto in = small_numbers<TestType>(ranks, count);
  World world{ranks, 2, 4, 512};
  world.add_network({{2, 2}}, 1);
  const detail::Reduction<Avg, TestType> average{Avg{}, ranks};
  for (const auto& out : {all_reduced<detail::SoloLane>(world, average, in),
                          all_reduced<detail::ThreadLanes<8>>(world, average, in)}) {
    for (Index i = 0; i < count; ++i) {
      const float want = std::is_same_v<TestType, std::int32_t> ? 2.f : 2.5f;
      REQUIRE(float(out[std::size_t(i)]) == want);
    }
  }
}

TEST_CASE("CollNetChain: slices of several steps carry their bytes to the network") {
  const int ranks = 3;
  const auto in = small_numbers<double>(ranks, 1001);
  World world{ranks, 1, 8, 256};
  NetworkRails& network = world.add_network({{2, 1}}, 1);
  const detail::Reduction<Max, double> most{Max{}, ranks};
  const auto out = all_reduced<detail::SoloLane>(world, most, in, 4);
  for (Index i = 0; i < 1001; ++i) {
    const auto at = std::size_t(i);
    REQUIRE(out[at] == std::max({in[0][at], in[1][at], in[2][at]}));
  }
  CHECK(network.steps() % 4 == 0);
  CHECK(network.wrong() == 0);
}
