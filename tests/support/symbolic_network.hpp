#pragma once

// Symbolic player of algorithms whose network reduces between hosts; see symbolic.hpp.
#include <cstddef>
#include <vector>

#include "host_sizes.hpp"
#include "symbolic.hpp"

namespace ccl::test {

/// Step of a head to the network. `host`: whose part it is; -1: an all-reduce.
struct SymbolicStep {
  Symbol value;
  int host = -1;
};

/// Rails of the network: wires from the heads with one index, and to them.
struct SymbolicRail {
  std::vector<std::vector<SymbolicStep>> up;  // by host
  std::vector<std::vector<Symbol>> down;
  std::vector<std::size_t> up_head, down_head;
  constexpr explicit SymbolicRail(std::size_t hosts)
      : up(hosts), down(hosts), up_head(hosts), down_head(hosts) {}
  constexpr bool has_room(std::size_t h, int slots) const {
    return up[h].size() - up_head[h] < std::size_t(slots);
  }
  constexpr bool has_result(std::size_t h) const { return down_head[h] < down[h].size(); }
  constexpr bool is_empty() const {
    for (std::size_t h = 0; h < up.size(); ++h) {
      if (up_head[h] != up[h].size() || down_head[h] != down[h].size()) return false;
    }
    return true;
  }
  /// Adds up a slice of every host. Sets `wrong` if they are not of one element, or overlap, or if
  /// a host sends to the all-gather of another one's part.
  template <class Op>
  constexpr bool step(int slots, bool& wrong) {
    for (std::size_t h = 0; h < up.size(); ++h) {
      if (up_head[h] == up[h].size()) return false;
    }
    const int host = up[0][up_head[0]].host;
    wrong = wrong || (host < 0) != cuda::std::is_same_v<Op, AllReduce>;
    const auto gets = [&](std::size_t h) {
      return !cuda::std::is_same_v<Op, ReduceScatter> || int(h) == host;
    };
    for (std::size_t h = 0; h < down.size(); ++h) {
      if (gets(h) && down[h].size() - down_head[h] == std::size_t(slots)) return false;
    }
    Symbol sum;
    for (std::size_t h = 0; h < up.size(); ++h) {
      const auto [got, of_host] = up[h][up_head[h]++];
      wrong = wrong || of_host != host || (sum.ranks & got.ranks) != 0;
      if (cuda::std::is_same_v<Op, AllGather>) {
        wrong = wrong || (got.ranks != 0) != (int(h) == host);
        if (int(h) == host) sum = got;
        continue;
      }
      wrong = wrong || (h > 0 && sum.element != got.element);
      sum = {sum.ranks | got.ranks, got.element};
    }
    for (std::size_t h = 0; h < down.size(); ++h) {
      if (gets(h)) down[h].push_back(sum);
    }
    return true;
  }
};

/// True if an operation completes on all hosts, as for `plays`. `heads` of each host use the
/// network on one channel, the first of which is the rank `first_head` of its host. `chunks`: of
/// each share; 0: a few.
template <class Algo, class Op = AllReduce>
constexpr bool plays_over_hosts(const HostSizes& sizes, int slots, int heads, int first_head = 0,
                                Index chunks = 0) {
  constexpr bool gathers = cuda::std::is_same_v<Op, AllGather>;
  constexpr bool scatters = cuda::std::is_same_v<Op, ReduceScatter>;
  const Index rounds = chunks > 0 ? chunks : gathers || scatters ? 4 : 9;
  const auto hosts = sizes.members();
  int ranks = 0;
  for (const auto& host : hosts) ranks += int(host.size());
  std::vector<std::vector<int>> orders;
  std::vector<int> host_of(ranks);
  std::vector<TraceContext> context(ranks);
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const int n = int(hosts[h].size());
    orders.emplace_back();
    for (int i = 0; i < n; ++i) orders[h].push_back(hosts[h][(i + first_head) % n]);
  }
  std::vector<int> all_heads;
  for (const auto& order : orders) {
    all_heads.insert(all_heads.end(), order.begin(), order.begin() + heads);
  }
  // The last share is short.
  const Index count = gathers || scatters ? rounds : rounds * heads - (heads > 1 ? 1 : 0);
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    for (int i = 0; i < int(orders[h].size()); ++i) {
      const int r = orders[h][i];
      host_of[r] = int(h);
      context[r].host_position = {i,      int(orders[h].size()), heads,           orders[h].data(),
                                  int(h), int(hosts.size()),     all_heads.data()};
      context[r].layout = {count, scatters ? count : 0, gathers ? count : 0, !gathers && !scatters};
      context[r].my_rank = r;
      context[r].rank_count = ranks;
      context[r].slots = slots;
      Algo::run(Op{}, context[r]);
    }
  }
  std::vector<std::vector<Symbol>> out(ranks, std::vector<Symbol>(count * (gathers ? ranks : 1)));
  std::vector<std::vector<Symbol>> wire(ranks * ranks);
  std::vector<std::size_t> head(ranks * ranks), at(ranks);
  std::vector<SymbolicRail> rails(heads, SymbolicRail{hosts.size()});
  bool wrong = false;
  for (bool progress = true; progress;) {
    progress = false;
    for (SymbolicRail& rail : rails) progress = rail.step<Op>(slots, wrong) || progress;
    if (wrong) return false;
    for (int r = 0; r < ranks; ++r) {
      if (at[r] == context[r].events.size()) continue;
      const Event& e = context[r].events[at[r]];
      const auto h = std::size_t(host_of[r]);
      const HostPosition& position = context[r].host_position;
      if ((e.from_network || e.to_network) && !position.is_head()) return false;
      SymbolicRail& rail = rails[position.is_head() ? position.place : 0];
      bool ready =
          (!e.from_network || rail.has_result(h)) && (!e.to_network || rail.has_room(h, slots));
      for (const int p : e.in) {
        if (p < 0) continue;
        if (host_of[p] != host_of[r]) return false;  // only the network leads to other hosts
        ready = ready && head[p * ranks + r] < wire[p * ranks + r].size();
      }
      for (const int p : e.out) {
        if (p < 0) continue;
        const int w = r * ranks + p;
        ready = ready && wire[w].size() - head[w] < std::size_t(slots);
      }
      if (!ready) continue;
      Symbol value;
      if ((e.does & loads) != 0) value = Symbol{1u << r, e.part.in};
      const auto add = [&](const Symbol& got) {
        wrong = wrong || (value.ranks & got.ranks) != 0;
        wrong = wrong || (value.ranks != 0 && value.element != got.element);
        value = {value.ranks | got.ranks, got.element};
      };
      for (const int p : e.in) {
        if (p >= 0) add(wire[p * ranks + r][head[p * ranks + r]++]);
      }
      if (e.from_network) add(rail.down[h][rail.down_head[h]++]);
      if (wrong) return false;
      if ((e.does & stores) != 0) out[r][e.part.out] = value;
      for (const int p : e.out) {
        if (p >= 0) wire[r * ranks + p].push_back(value);
      }
      if (e.to_network) rail.up[h].push_back({value, e.host});
      ++at[r];
      progress = true;
    }
  }
  const unsigned everyone = ranks == 32 ? ~0u : (1u << ranks) - 1;
  for (int r = 0; r < ranks; ++r) {
    if (at[r] != context[r].events.size()) return false;  // deadlock
    for (Index i = 0; i < Index(out[r].size()); ++i) {
      Symbol want{everyone, scatters ? r * count + i : i};
      if (gathers) want = {1u << (i / count), i % count};
      if (out[r][i] != want) return false;
    }
    for (int p = 0; p < ranks; ++p) {
      if (head[r * ranks + p] != wire[r * ranks + p].size()) return false;  // left over
    }
  }
  for (const SymbolicRail& rail : rails) {
    if (!rail.is_empty()) return false;
  }
  return true;
}

}  // namespace ccl::test
