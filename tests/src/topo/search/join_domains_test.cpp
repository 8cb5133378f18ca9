#include "topo/search/join_domains.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "support/catch.hpp"

namespace topo = ccl::topo;
using topo::Arrangement;
using topo::Machine;

namespace {
constexpr int nics = 10;  // numbers of the NICs of host h: from h * nics on

/// Hosts of `per_host` ranks, numbered host by host. Host h is in the domain `fabrics[h]`; channel
/// c enters it by NIC c and leaves it by NIC c + 1, of `channels`.
std::vector<Machine> hosts_of(const std::vector<std::uint64_t>& fabrics, int per_host, int channels,
                              int cross_nic = 0) {
  std::vector<Machine> hosts;
  for (std::size_t h = 0; h < fabrics.size(); ++h) {
    Machine host;
    host.fabric = fabrics[h];
    host.nvlink = true;
    host.gpu_bw = 400;
    for (int i = 0; i < per_host; ++i) {
      host.ranks.push_back(int(h) * per_host + i);
      host.nets.push_back({int(h) * nics + i % channels});
    }
    host.ring.bw_inter = host.tree.bw_inter = 50;
    host.ring.cross_nic = cross_nic;
    host.tree.pattern = topo::Pattern::balanced_tree;
    for (int c = 0; c < channels; ++c) {
      topo::ChannelOrder order{host.ranks, int(h) * nics + c, int(h) * nics + (c + 1) % channels};
      std::rotate(order.ranks.begin(), order.ranks.begin() + c % per_host, order.ranks.end());
      host.ring.channels.push_back(order);
      host.tree.channels.push_back(order);
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

/// Ends of an edge, whose NICs must be those of their hosts. Returns the NIC of the sender.
int check_nets(const Arrangement& made, topo::EdgeUse use, int from, int to, int channel,
               int per_host) {
  const int out = made.net({use, from, to, channel, true});
  const int in = made.net({use, to, from, channel, false});
  CHECK(out / nics == from / per_host);
  CHECK(in / nics == to / per_host);
  return out;
}
}  // namespace

TEST_CASE("hosts that no NVLink joins stay machines of their own") {
  for (const std::vector<std::uint64_t>& fabrics :
       {std::vector<std::uint64_t>{0, 0, 0}, std::vector<std::uint64_t>{7, 8, 9}}) {
    const auto hosts = hosts_of(fabrics, 2, 2);
    const auto machines = topo::join_domains(hosts);
    REQUIRE(machines.size() == 3);
    for (std::size_t m = 0; m < 3; ++m) {
      CHECK(machines[m].ranks == hosts[m].ranks);
      CHECK(machines[m].ring.channels == hosts[m].ring.channels);
    }
  }
}

TEST_CASE("the hosts of a domain are one machine, whose channels enter by all of its hosts") {
  const int cross_nic = GENERATE(0, 2);
  const auto hosts = hosts_of({5, 6, 5, 6}, 4, 2, cross_nic);
  const auto machines = topo::join_domains(hosts);
  REQUIRE(machines.size() == 2);
  CHECK(machines[0].ranks == std::vector{0, 1, 2, 3, 8, 9, 10, 11});
  // GPUs carry 8 channels of 50 GB/s, and the hosts have 4.
  REQUIRE(machines[0].ring.count() == 4);
  std::map<int, int> in, out;  // channels by host
  for (const topo::ChannelOrder& order : machines[0].ring.channels) {
    CHECK(order.net_in / nics == order.ranks.front() / 4);
    CHECK(order.net_out / nics == order.ranks.back() / 4);
    ++in[order.net_in];
    ++out[order.net_out];
  }
  const std::map<int, int> once{{0, 1}, {1, 1}, {20, 1}, {21, 1}};
  CHECK(in == once);
  CHECK(out == once);
}

TEST_CASE("a ring crosses the network once for each domain, by NICs of the hosts at its ends") {
  const int cross_nic = GENERATE(0, 2);
  for (const int per_host : {1, 4}) {
    INFO(per_host << " ranks of a host");
    const auto made =
        Arrangement::of(hosts_of({5, 5, 5, 6, 6, 6}, per_host, 2, cross_nic), 6 * per_host);
    REQUIRE(made);
    CHECK(made->machine_count() == 2);
    CHECK(made->ring_count() == 6);
    CHECK(made->between_gbs() == 300);
    std::set<int> used;
    for (int c = 0; c < made->ring_count(); ++c) {
      const std::vector<int>& ring = made->ring(c);
      int crossings = 0;
      for (std::size_t i = 0; i < ring.size(); ++i) {
        const int from = ring[i], to = ring[(i + 1) % ring.size()];
        if (made->machine_of(from) == made->machine_of(to)) continue;
        ++crossings;
        used.insert(check_nets(*made, topo::EdgeUse::ring, from, to, c, per_host));
      }
      CHECK(crossings == 2);
    }
    CHECK(used == std::set{0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51});
  }
}

TEST_CASE("a tree enters each domain once, by NICs of the hosts at its edges") {
  for (const int per_host : {1, 2, 4}) {
    INFO(per_host << " ranks of a host");
    const int ranks = 6 * per_host;
    const auto made = Arrangement::of(hosts_of({5, 5, 6, 6, 7, 7}, per_host, 2), ranks);
    REQUIRE(made);
    REQUIRE(made->machine_count() == 3);
    for (int channel = 0; channel < 2 * made->tree_count(); ++channel) {
      int between = 0, edges = 0;
      for (int r = 0; r < ranks; ++r) {
        const int up = made->tree(r, -1, channel).up;
        edges += up >= 0 ? 1 : 0;
        if (up < 0 || made->machine_of(up) == made->machine_of(r)) continue;
        ++between;
        (void)check_nets(*made, topo::EdgeUse::tree, r, up, channel, per_host);
        (void)check_nets(*made, topo::EdgeUse::tree, up, r, channel, per_host);
      }
      CHECK(edges == ranks - 1);
      CHECK(between == 2);
    }
  }
}

TEST_CASE("messages between domains use NICs of their own hosts") {
  const auto made = Arrangement::of(hosts_of({5, 5, 6, 6}, 4, 4), 16);
  REQUIRE(made);
  CHECK(made->max_nets() == 1);
  for (int from = 0; from < 8; ++from) {
    CHECK(made->nets_of(from) == std::vector{from / 4 * nics + from % 4});
    for (int to = 8; to < 16; ++to) check_nets(*made, topo::EdgeUse::pair, from, to, 0, 4);
  }
}

TEST_CASE("a domain alone is one machine of GPUs that are alike, of one ring") {
  const auto made = Arrangement::of(hosts_of({5, 5, 5}, 4, 4), 12);
  REQUIRE(made);
  CHECK(made->machine_count() == 1);
  CHECK(made->ring_count() == 1);
  CHECK(made->gpu_gbs() == 400);
  CHECK(made->by_nvlink());
  CHECK(made->tree(0, -1, 0).far == 0);
}

TEST_CASE("a domain has channels enough for the links of a GPU, and no more") {
  auto hosts = hosts_of({5, 5, 5, 5}, 4, 4);
  for (Machine& host : hosts) host.gpu_bw = 280;
  CHECK(topo::join_domains(hosts)[0].ring.count() == 6);
  for (Machine& host : hosts) host.gpu_bw = 60;  // and no fewer than a host has
  CHECK(topo::join_domains(hosts)[0].ring.count() == 4);
}
