#include <ccl/algo/collnet_direct.hpp>

#include "support/every_protocol.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("CollNetDirect: sums on hosts of every size, with any number of heads") {
  struct Job {
    HostSizes hosts;
    int heads;
  };
  for (const Job& job : {Job{{{1, 1}}, 1}, Job{{{2, 2}}, 2}, Job{{{3, 1, 2}, true}, 1},
                         Job{{{3, 3}}, 2}, Job{{{2, 2, 2, 2}, true}, 2}}) {
    const auto& of = job.hosts.ranks;
    World world{std::accumulate(of.begin(), of.end(), 0), 2, 4, 512};
    NetworkRails& network = world.add_network(job.hosts, job.heads);
    for (const Index count : {0, 1, 63, 5001}) {
      check_all_reduce<CollNetDirect, Simple, detail::SoloLane>(world, count, 1, count == 63);
    }
    check_all_reduce<CollNetDirect, Simple, detail::ThreadLanes<8>>(world, 2001, 2, true);
    CHECK(network.steps() > 5001 * 4 / 512);
    CHECK(network.wrong() == 0);
  }
}

TEST_CASE("CollNetDirect: gathers and scatters on hosts with a head for each rank") {
  struct Job {
    HostSizes hosts;
    int slots;
  };
  for (const Job& job :
       {Job{{{1, 1}}, 4}, Job{{{2, 2}}, 1}, Job{{{2, 2}}, 8}, Job{{{3, 3}, true}, 4},
        Job{{{2, 2, 2, 2}, true}, 2}, Job{{{1, 1, 1, 1, 1}}, 8}}) {
    const auto& of = job.hosts.ranks;
    World world{std::accumulate(of.begin(), of.end(), 0), 2, job.slots, 512};
    NetworkRails& network = world.add_network(job.hosts, of[0]);
    for (const Index count : {0, 1, 63, 2001}) {
      const bool in_place = count == 63;
      check_all_gather<CollNetDirect, Simple, detail::SoloLane>(world, count, 1, in_place);
      check_reduce_scatter<CollNetDirect, Simple, detail::SoloLane>(world, count, 1, in_place);
    }
    check_all_gather<CollNetDirect, Simple, detail::ThreadLanes<8>>(world, 1001, 1, true);
    check_reduce_scatter<CollNetDirect, Simple, detail::ThreadLanes<8>>(world, 1001, 1, true);
    CHECK(network.steps() > 0);
    CHECK(network.wrong() == 0);
  }
}

TEST_CASE("CollNetDirect: slices of several steps carry their host to the network") {
  World world{4, 1, 8, 256};
  NetworkRails& network = world.add_network({{2, 2}}, 2);
  check_all_gather<CollNetDirect, Simple, detail::SoloLane>(world, 5001, 4, false);
  const detail::Reduction<Avg, double> average{Avg{}, 4};
  const Index count = 301;
  std::vector<std::vector<double>> in(4), out(4, std::vector<double>(std::size_t(count)));
  for (std::size_t r = 0; r < 4; ++r) {
    for (Index i = 0; i < 4 * count; ++i) in[r].push_back(double(r * 4) + double(i));
  }
  REQUIRE(world.run<ReduceScatter, CollNetDirect, Simple, detail::SoloLane>(
      average, 4, 4, 0, [&](int r, auto& w) {
        w.input = in[std::size_t(r)].data();
        w.output = out[std::size_t(r)].data();
        w.layout = {count, count, 0, false};
      }));
  for (Index r = 0; r < 4; ++r) {
    for (Index i = 0; i < count; ++i) {
      REQUIRE(out[std::size_t(r)][std::size_t(i)] == 6.0 + double(r * count + i));
    }
  }
  CHECK(network.wrong() == 0);
}

TEST_CASE("CollNetDirect: a head adds up the data of eight ranks") {
  const int ranks = 10;
  const Index count = 1500;
  World world{ranks, 1, 2, 256};
  NetworkRails& network = world.add_network({{8, 2}}, 2);
  const detail::Reduction<Avg, float> average{Avg{}, ranks};
  std::vector<std::vector<float>> in(ranks, std::vector<float>(count)), out = in;
  for (int r = 0; r < ranks; ++r) {
    for (Index i = 0; i < count; ++i) in[r][i] = float(r * 10 + i);
  }
  REQUIRE(world.run<AllReduce, CollNetDirect, Simple, detail::SoloLane>(
      average, 1, 1, 0, [&](int r, auto& w) {
        w.input = in[r].data();
        w.output = out[r].data();
        w.layout = {count, 0, 0, true};
      }));
  for (int r = 0; r < ranks; ++r) {
    for (Index i = 0; i < count; ++i) REQUIRE(out[r][i] == float(i) + 45.f);
  }
  CHECK(network.wrong() == 0);
}
