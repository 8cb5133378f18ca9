#include <ccl/topo/arrange.hpp>

#include <algorithm>
#include <random>
#include <set>

#include "support/catch.hpp"

namespace topo = ccl::topo;
using topo::Arrangement;
using topo::Machine;

namespace {

/// Returns machines whose ranks are interleaved: rank r is on machine `of_rank[r]`.
std::vector<Machine> machines(const std::vector<int>& of_rank, int channels, topo::Pattern pattern,
                              bool even) {
  std::vector<Machine> all;
  std::vector<int> index;
  std::vector<int> seen;
  for (std::size_t r = 0; r < of_rank.size(); ++r) {
    const auto known = std::find(seen.begin(), seen.end(), of_rank[r]);
    if (known == seen.end()) {
      seen.push_back(of_rank[r]);
      all.emplace_back();
      all.back().ranks.push_back(int(r));
    } else {
      all[std::size_t(known - seen.begin())].ranks.push_back(int(r));
    }
  }
  for (Machine& machine : all) {
    machine.even = even;
    machine.tree.pattern = pattern;
    for (int c = 0; c < channels; ++c) {
      topo::ChannelOrder order{machine.ranks};
      std::rotate(order.ranks.begin(), order.ranks.begin() + c % int(order.ranks.size()),
                  order.ranks.end());
      machine.ring.channels.push_back(order);
      std::reverse(order.ranks.begin(), order.ranks.end());
      machine.tree.channels.push_back(order);
    }
  }
  return all;
}

/// Edges of a ring that leave a machine.
int crossings(const Arrangement& made, const std::vector<int>& ring) {
  int count = 0;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    count += made.machine_of(ring[i]) != made.machine_of(ring[(i + 1) % ring.size()]) ? 1 : 0;
  }
  return count;
}

/// Returns the defect of a tree: ranks that `root` (or any root, if -1) does not reach once, ends
/// that disagree, or too many edges between machines.
std::string wrong_tree(const Arrangement& made, int root, int channel) {
  const int ranks = made.ranks();
  std::vector<ccl::TreePosition> positions;
  for (int r = 0; r < ranks; ++r) positions.push_back(made.tree(r, root, channel));
  int top = -1, edges = 0, between = 0;
  for (int r = 0; r < ranks; ++r) {
    if (positions[r].is_root()) {
      if (top >= 0) return "two roots";
      top = r;
    }
    for (const int down : positions[r].down) {
      if (down < 0) continue;
      if (down >= ranks || positions[down].up != r) return "ends disagree";
      ++edges;
      between += made.machine_of(down) != made.machine_of(r) ? 1 : 0;
    }
  }
  if (top < 0 || (root >= 0 && top != root)) return "wrong root";
  if (edges != ranks - 1) return "edges missing: a child did not fit";
  for (int r = 0; r < ranks; ++r) {
    int up = r, near = 0, far = 0;
    while (positions[up].up >= 0 && near + far < ranks) {
      ++(made.machine_of(up) == made.machine_of(positions[up].up) ? near : far);
      up = positions[up].up;
    }
    if (up != top) return "not connected";
    if (near != positions[r].near || far != positions[r].far) return "its depth is another";
  }
  return between == made.machine_count() - 1 ? "" : "too many edges between machines";
}

}  // namespace

TEST_CASE("one machine in order is what there was before") {
  for (const int ranks : {1, 2, 3, 8, 13}) {
    const Arrangement made = Arrangement::in_order(ranks);
    CHECK(made.ring_count() == 1);
    CHECK(std::is_sorted(made.ring(7).begin(), made.ring(7).end()));
    for (int r = 0; r < ranks; ++r) {
      for (int root = -1; root < ranks; ++root) {
        for (const int channel : {0, 1}) {
          const auto mine = made.tree(r, root, channel);
          const auto plain =
              ccl::double_binary_tree(r, ranks, std::max(root, 0), root < 0 ? channel % 2 : 0);
          CHECK(mine.up == plain.up);
          for (int d = 0; d < 3; ++d) CHECK(mine.down[d] == plain.down[d]);
        }
      }
    }
  }
}

TEST_CASE("interleaved hosts: rings go through one after the other") {
  // Ranks 0 and 2 on host A, 1 and 3 on B.
  const auto made = Arrangement::of(machines({0, 1, 0, 1}, 1, topo::Pattern::tree, true), 4);
  REQUIRE(made);
  CHECK(made->ring(0) == std::vector<int>{0, 2, 1, 3});
}

TEST_CASE("any interleaving: whole rings and trees, with the fewest edges between machines") {
  std::mt19937 random(5);
  for (int machine_count = 1; machine_count <= 9; ++machine_count) {
    for (int trial = 0; trial < 12; ++trial) {
      std::vector<int> of_rank;
      for (int m = 0; m < machine_count; ++m) {
        const int size = trial < 5 ? trial + 1 : int(random() % 9) + 1;
        of_rank.insert(of_rank.end(), std::size_t(size), m);
      }
      std::shuffle(of_rank.begin(), of_rank.end(), random);
      const int ranks = int(of_rank.size());
      for (const auto pattern :
           {topo::Pattern::tree, topo::Pattern::split_tree, topo::Pattern::balanced_tree}) {
        for (const bool even : {true, false}) {
          const auto made = Arrangement::of(machines(of_rank, 3, pattern, even), ranks);
          REQUIRE(made);
          INFO(machine_count << " machines, " << ranks << " ranks, even " << even << " pattern "
                             << int(pattern));
          for (int c = 0; c < 3; ++c) {
            CHECK(std::set<int>(made->ring(c).begin(), made->ring(c).end()).size() ==
                  std::size_t(ranks));
            if (machine_count > 1) CHECK(crossings(*made, made->ring(c)) == machine_count);
          }
          for (int root = -1; root < ranks; ++root) {
            for (int channel = 0; channel < 4; ++channel) {
              const std::string wrong = wrong_tree(*made, root, channel);
              if (!wrong.empty()) FAIL(wrong << ", root " << root << " channel " << channel);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("twins between machines: who is inner in one is a leaf in the other") {
  std::vector<int> of_rank;
  for (int m = 0; m < 8; ++m) of_rank.insert(of_rank.end(), 4, m);
  const auto made = Arrangement::of(machines(of_rank, 1, topo::Pattern::tree, true), 32);
  REQUIRE(made);
  int inner_in_both = 0;
  for (int r = 0; r < 32; ++r) {
    const auto children = [&](int channel) {
      const auto position = made->tree(r, -1, channel);
      return std::count_if(std::begin(position.down), std::end(position.down),
                           [](int down) { return down >= 0; });
    };
    inner_in_both += children(0) > 1 && children(1) > 1 ? 1 : 0;
  }
  CHECK(inner_in_both == 0);
}

TEST_CASE("messages of ranks describe the machines again") {
  const std::vector<int> of_rank{0, 1, 0, 1, 0, 2};
  const auto true_ones = machines(of_rank, 2, topo::Pattern::balanced_tree, false);
  std::vector<topo::MachineShare> reported;
  for (int r = 0; r < 6; ++r) reported.push_back(topo::share_of(true_ones[of_rank[r]], r));
  std::string wrong;
  const auto again = topo::machines_of(reported, wrong);
  CHECK(wrong == "");
  REQUIRE(again.size() == 3);
  for (std::size_t m = 0; m < 3; ++m) {
    CHECK(again[m].ranks == true_ones[m].ranks);
    CHECK(again[m].ring.channels == true_ones[m].ring.channels);
    CHECK(again[m].tree.channels == true_ones[m].tree.channels);
    CHECK(again[m].tree.pattern == topo::Pattern::balanced_tree);
    CHECK_FALSE(again[m].even);
  }
  SECTION("a rank that saw something else is noticed") {
    reported[2].ring[1] = 2;
    const auto mended = topo::machines_of(reported, wrong);
    CHECK(wrong.find("rank 0's machine") != std::string::npos);
    CHECK(mended[0].ring.channels.at(0).ranks == std::vector<int>{0, 2, 4});
    CHECK(Arrangement::of(mended, 6));
  }
  SECTION("garbage too") {
    reported[5].ring_count = 1 << 30;
    CHECK(topo::machines_of(reported, wrong).size() == 3);
    CHECK(wrong != "");
  }
}

TEST_CASE("machines of different sizes and channels are aligned") {
  auto all = machines({0, 0, 0, 1}, 4, topo::Pattern::balanced_tree, true);
  all[1].ring.channels.resize(2);
  all[1].tree.pattern = topo::Pattern::tree;
  const auto made = Arrangement::of(all, 4);
  REQUIRE(made);
  CHECK(made->ring_count() == 2);
  CHECK(made->tree_count() == 4);
  CHECK_FALSE(Arrangement::of({}, 0));
  CHECK_FALSE(Arrangement::of(all, 5));
}

namespace {

/// Two or more machines of four ranks, whose ring c enters by NIC c and leaves by NIC c + 1. Rank r
/// of a machine is nearest to NICs 2r and 2r + 1, or to `nics` such.
/// The rank at place `reaching` of each machine reaches the NICs of the first three.
Arrangement with_nics(int count, int cross_nic, bool same_rail = false, int reaching = -1,
                      int nics = 2) {
  constexpr int each = 4;
  std::vector<int> of_rank;
  for (int r = 0; r < count * each; ++r) of_rank.push_back(r / each);
  auto all = machines(of_rank, each, topo::Pattern::balanced_tree, false);
  for (Machine& machine : all) {
    machine.ring.cross_nic = cross_nic;
    machine.same_rail = same_rail;
    for (int c = 0; c < each; ++c) {
      machine.ring.channels[std::size_t(c)].net_in = c;
      machine.ring.channels[std::size_t(c)].net_out = (c + 1) % each;
      machine.tree.channels[std::size_t(c)].net_in = 10 + c;
      machine.tree.channels[std::size_t(c)].net_out = 20 + c;
      const auto up_to = [nics](int first, int last) {
        std::vector<int> nets;
        for (int net = nics * first; net < nics * last; ++net) nets.push_back(net);
        return nets;
      };
      machine.nets.push_back(up_to(c, c + 1));
      machine.rails.push_back(reaching == c ? up_to(0, 3) : std::vector<int>{});
    }
  }
  // As ranks publish and gather it.
  std::vector<topo::MachineShare> shares;
  for (const Machine& machine : all) {
    for (const int r : machine.ranks) shares.push_back(topo::share_of(machine, r));
  }
  std::string wrong;
  auto made = Arrangement::of(topo::machines_of(shares, wrong), count * each);
  CHECK(wrong.empty());
  REQUIRE(made);
  return *std::move(made);
}

}  // namespace

TEST_CASE("edges of a ring between machines use the NICs that the search gave the channel") {
  for (const int cross_nic : {0, 2}) {
    const Arrangement made = with_nics(3, cross_nic);
    for (int channel = 0; channel < 8; ++channel) {
      const std::vector<int>& ring = made.ring(channel);
      for (std::size_t i = 0; i < ring.size(); ++i) {
        const int from = ring[i], to = ring[(i + 1) % ring.size()];
        if (made.machine_of(from) == made.machine_of(to)) continue;
        // Every second machine swaps pairs of channels if rings change NICs.
        const auto order_at = [&](int rank) {
          const bool swapped = cross_nic == 2 && made.machine_of(rank) % 2 == 1;
          return swapped ? channel % 4 ^ 1 : channel % 4;
        };
        CHECK(made.net({topo::EdgeUse::ring, from, to, channel, true}) == (order_at(from) + 1) % 4);
        CHECK(made.net({topo::EdgeUse::ring, to, from, channel, false}) == order_at(to));
      }
    }
  }
}

TEST_CASE("edges of a tree between machines use the NIC of the head or of the second rank") {
  const Arrangement made = with_nics(4, 0);
  for (const int root : {-1, 5}) {
    const auto use = root < 0 ? topo::EdgeUse::tree : topo::EdgeUse::rooted_tree;
    int between = 0;
    for (int channel = 0; channel < 8; ++channel) {
      const int order = (root < 0 ? channel / 2 : channel) % 4;
      for (int r = 0; r < made.ranks(); ++r) {
        const int up = made.tree(r, root, channel).up;
        if (up < 0 || made.machine_of(up) == made.machine_of(r)) continue;
        ++between;
        CHECK(made.net({use, r, up, channel, true}) == 10 + order);
        if (root < 0) {
          const int there = made.net({use, up, r, channel, false});
          CHECK((there == 10 + order || there == 20 + order));
        }
      }
    }
    CHECK(between == 8 * 3);
  }
}

TEST_CASE("messages use the nearest NICs, in turn by channel and peer") {
  const Arrangement made = with_nics(2, 0);
  for (int r = 0; r < 4; ++r) {
    std::set<int> by_channel, by_peer;
    for (int c = 0; c < 2; ++c) {
      by_channel.insert(made.net({topo::EdgeUse::pair, r, 4 + r, c, true}));
      by_peer.insert(made.net({topo::EdgeUse::pair, r, 4 + c, 0, true}));
      // Ranks of one place are on one rail.
      CHECK(made.net({topo::EdgeUse::pair, r, 4 + r, c, true}) ==
            made.net({topo::EdgeUse::pair, 4 + r, r, c, false}));
    }
    CHECK(by_channel == std::set<int>{2 * r, 2 * r + 1});
    CHECK(by_peer == by_channel);
  }
  // Ranks that name other ranks by their place in the ring have messages, too.
  CHECK(made.net({topo::EdgeUse::ring, 0, 6, 0, true}) ==
        made.net({topo::EdgeUse::pair, 0, 6, 0, true}));
  const Arrangement rails = with_nics(2, 0, true);
  for (int peer = 4; peer < 8; ++peer) {
    const int rail = peer - 4, net = rails.net({topo::EdgeUse::pair, 0, peer, 0, true});
    CHECK((net == 2 * rail || net == 2 * rail + 1));
  }
}

TEST_CASE("messages use the NICs of the receiver's rail where the sender reaches them") {
  const Arrangement made = with_nics(2, 0, false, 1), wide = with_nics(2, 0, false, 1, 4);
  const auto place_of_nic = [&](int rank, int peer, bool sends) {
    return made.net({topo::EdgeUse::pair, rank, peer, 0, sends}) / 2;
  };
  for (int peer = 4; peer < 7; ++peer) {
    CHECK(place_of_nic(1, peer, true) == peer - 4);
    CHECK(place_of_nic(peer, 1, false) == peer - 4);  // the receiver's own
    CHECK(place_of_nic(0, peer, true) == 0);
    CHECK(place_of_nic(1, peer, false) == 1);
    for (int channel = 0; channel < 4; ++channel) {  // the same rail at both ends
      CHECK(wide.net({topo::EdgeUse::pair, 1, peer, channel, true}) ==
            wide.net({topo::EdgeUse::pair, peer, 1, channel, false}));
    }
  }
  CHECK(place_of_nic(1, 7, true) == 1);  // out of reach
}

TEST_CASE("without a NIC in the topology there is no answer") {
  const Arrangement made = Arrangement::in_order(4);
  CHECK(made.net({topo::EdgeUse::pair, 0, 1, 0, true}) == -1);
  CHECK(made.nets_of(2).empty());
  CHECK(made.max_nets() == 0);
}

TEST_CASE("ranks of a machine that found other NICs stay in order") {
  auto all = machines({0, 0, 1, 1}, 2, topo::Pattern::tree, true);
  for (Machine& machine : all) machine.nets = {{0}, {1}};
  std::vector<topo::MachineShare> shares;
  for (int r = 0; r < 4; ++r) shares.push_back(topo::share_of(all[std::size_t(r / 2)], r));
  shares[3].ring_in[0] = 5;
  std::string wrong;
  const auto made = Arrangement::of(topo::machines_of(shares, wrong), 4);
  REQUIRE(made);
  CHECK(wrong.find("see different machines") != std::string::npos);
  CHECK(made->nets_of(3) == std::vector<int>{1});
}

TEST_CASE("heads travel in the shares, in their order, if the ranks agree on them") {
  auto all = machines({0, 1, 0, 1, 0}, 1, topo::Pattern::tree, true);
  all[0].heads = {4, 0};
  std::vector<topo::MachineShare> shares;
  for (int r = 0; r < 5; ++r) shares.push_back(topo::share_of(all[std::size_t(r % 2)], r));
  std::string wrong;
  const auto made = Arrangement::of(topo::machines_of(shares, wrong), 5);
  REQUIRE(made);
  CHECK(made->heads_of(2) == std::vector<int>{4, 0});
  CHECK(made->heads_of(3).empty());
  shares[2].head = 1;
  const auto doubtful = Arrangement::of(topo::machines_of(shares, wrong), 5);
  REQUIRE(doubtful);
  CHECK(doubtful->heads_of(2).empty());
  CHECK(Arrangement::in_order(4).heads_of(1).empty());
}

TEST_CASE("the slowest machine's links are those of all, and travel in the shares") {
  const std::vector<int> of_rank{0, 0, 1, 1, 2};
  auto all = machines(of_rank, 1, topo::Pattern::tree, true);
  all[0].gpu_bw = 370.8F;
  all[1].gpu_bw = 240;
  all[0].nvlink = all[1].nvlink = true;
  std::vector<topo::MachineShare> shares;
  for (const Machine& machine : all) {
    for (const int r : machine.ranks) shares.push_back(topo::share_of(machine, r));
  }
  std::string wrong;
  const auto made = Arrangement::of(topo::machines_of(shares, wrong), 5);
  REQUIRE(made);
  CHECK(made->gpu_gbs() == 240);
  CHECK(made->by_nvlink());
  shares[2].nvlink = shares[3].nvlink = 0;
  const auto mixed = Arrangement::of(topo::machines_of(shares, wrong), 5);
  REQUIRE(mixed);
  CHECK_FALSE(mixed->by_nvlink());
  CHECK(Arrangement::in_order(4).gpu_gbs() == 0);
}
