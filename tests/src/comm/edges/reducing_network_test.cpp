#include "comm/edges/reducing_network.hpp"

#include <vector>

#include "support/catch.hpp"

using namespace ccl::detail;

namespace {
using Hosts = std::vector<std::vector<int>>;
/// Inputs of ranks, by the device next to each and the number of devices.
std::vector<NetworkInputs> inputs(const std::vector<int>& nearest, int devices) {
  std::vector<NetworkInputs> all;
  for (const int device : nearest) {
    NetworkInputs one;
    one.devices = devices;
    one.nearest = device;
    one.support = {0xfff, 0xfff, 0xfff, 0xfff};
    one.moves = 0b111;
    all.push_back(one);
  }
  return all;
}
ReducingNetwork chosen(const Hosts& hosts, const std::vector<NetworkInputs>& all) {
  ReducingNetwork network;
  choose_heads(network, hosts, all);
  return network;
}
}  // namespace

TEST_CASE("a host has as many heads as devices, ranks and other hosts' heads allow") {
  const Hosts two{{0, 1, 2}, {3, 4, 5}};
  CHECK(chosen(two, inputs({-1, -1, -1, -1, -1, -1}, 1)).heads == 1);
  CHECK(chosen(two, inputs({-1, -1, -1, -1, -1, -1}, 2)).heads == 2);
  CHECK(chosen(two, inputs({-1, -1, -1, -1, -1, -1}, 64)).heads == 3);
  CHECK(chosen({{0, 1, 2}, {3}}, inputs({-1, -1, -1, -1}, 2)).heads == 1);
  auto uneven = inputs({-1, -1, -1, -1, -1, -1}, 2);
  uneven[4].devices = 1;
  CHECK(chosen(two, uneven).heads == 1);
  Hosts wide(2);
  for (int r = 0; r < 40; ++r) wide[std::size_t(r % 2)].push_back(r);
  CHECK(chosen(wide, inputs(std::vector<int>(40, -1), 64)).heads == 8);
}

TEST_CASE("the head of a rail is the first rank next to its device") {
  CHECK(chosen({{0, 1}, {2, 3}}, inputs({-1, -1, -1, -1}, 2)).hosts == Hosts{{0, 1}, {2, 3}});
  CHECK(chosen({{0, 1}, {2, 3}}, inputs({1, 0, 0, 1}, 2)).hosts == Hosts{{1, 0}, {2, 3}});
  CHECK(chosen({{0, 1, 2, 3}, {4}}, inputs({2, 2, 0, 0, 0}, 3)).hosts == Hosts{{2, 0, 1, 3}, {4}});
  // Rank 0 is next to the second device, so another rank heads the first rail.
  CHECK(chosen({{0, 1, 2}, {3, 4, 5}}, inputs({1, -1, -1, 0, 1, 1}, 2)).hosts ==
        Hosts{{1, 0, 2}, {3, 4, 5}});
  // All ranks are next to one device.
  CHECK(chosen({{0, 1, 2}, {3, 4}}, inputs({1, 1, 1, 0, 0}, 2)).hosts == Hosts{{0, 1, 2}, {3, 4}});
}

TEST_CASE("a network reduces what it reduces for all ranks") {
  auto all = inputs({-1, -1, -1}, 1);
  all[1].support[0] = 0x0ff;
  all[1].moves = 1u << int(NetworkMove::all_reduce) | 1u << int(NetworkMove::reduce_scatter);
  all[2].support[0] = 0xff0;
  all[2].support[3] = 0;
  const ReducingNetwork network = chosen({{0, 1}, {2}}, all);
  CHECK(network.support == ccl::detail::collnet::Support{0x0f0, 0xfff, 0xfff, 0});
  CHECK(network.contains(NetworkMove::all_reduce));
  CHECK(network.contains(NetworkMove::reduce_scatter));
  CHECK_FALSE(network.contains(NetworkMove::all_gather));  // rank 1 has none
  CHECK(network.host_of(1) == 0);
  CHECK(network.host_of(2) == 1);
  CHECK(network.host_of(7) == -1);
  CHECK(network.max_ranks() == 2);
}
