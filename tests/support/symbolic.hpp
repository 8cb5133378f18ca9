#pragma once

// Symbolic player. It runs an algorithm's own code at compile time on every rank. Values record the
// contributions that they hold, and wires hold a given number of slices.
#include <ccl/algo/chunks.hpp>
#include <ccl/detail/wire/prims.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/position.hpp>

#include <set>
#include <utility>
#include <vector>

#include "tree_over_hosts.hpp"

namespace ccl::test {

/// An element of the result in the making: which ranks have contributed to which element.
struct Symbol {
  unsigned ranks = 0;
  Index element = -1;
  friend constexpr bool operator==(const Symbol&, const Symbol&) = default;
};

enum StepParts { gets = 1, loads = 2, stores = 4, puts = 8 };

struct Event {
  int does = 0;
  static constexpr int most = 7;  // wires in, and out
  int in[most] = {-1, -1, -1, -1, -1, -1, -1}, out[most] = {-1, -1, -1, -1, -1, -1, -1};
  Part part;
  bool own_is_output = false;  // loads what this rank has stored
  bool from_network = false, to_network = false;
  int host = -1;  // whose part it is, on the way to a network
};

template <int In, int Out>
struct TracePrims {
  std::vector<Event>& events;
  Peers<In> ins;
  Peers<Out> outs;
  bool from_network = false, to_network = false;
  bool from_output = false;
  int host = -1;
  constexpr void own_is_output() { from_output = true; }
  constexpr void lend() {}
  constexpr void lend_on() {}
  constexpr void only_sends() {}
  constexpr void note(int does, const Part& part) {
    if (part.count == 0) return;
    Event e;
    e.does = does;
    e.part = part;
    e.own_is_output = from_output;
    e.from_network = from_network && (does & gets) != 0;
    e.to_network = to_network && (does & puts) != 0;
    e.host = host;
    for (int i = 0; i < In && (does & gets) != 0; ++i) e.in[i] = ins.rank[i];
    for (int o = 0; o < Out && (does & puts) != 0; ++o) e.out[o] = outs.rank[o];
    events.push_back(e);
  }
  constexpr void send(const Part& p) { note(loads | puts, p); }
  constexpr void copy_send(const Part& p) { note(loads | stores | puts, p); }
  constexpr void recv(const Part& p) { note(gets | stores, p); }
  constexpr void recv_copy_send(const Part& p) { note(gets | stores | puts, p); }
  constexpr void recv_reduce_send(const Part& p) { note(gets | loads | puts, p); }
  constexpr void recv_reduce_copy(const Part& p) { note(gets | loads | stores, p); }
  constexpr void recv_reduce_finish_send(const Part& p) { note(gets | loads | puts, p); }
  constexpr void recv_reduce_copy_send(const Part& p) { note(gets | loads | stores | puts, p); }
  constexpr void recv_finish(const Part& p) { recv(p); }
  constexpr void recv_finish_copy_send(const Part& p) { recv_copy_send(p); }
  constexpr void window(int of_host) { host = of_host; }
  constexpr void send_none(const Part& p) { note(puts, p); }
};

struct TraceContext {
  RingPosition ring_position;
  TreePosition tree_position;
  HostPosition host_position{};
  int root_rank = 0;
  Layout layout;
  int my_rank = 0, rank_count = 1, slots = 1;
  std::vector<Event> events{};
  constexpr RingPosition ring() const { return ring_position; }
  constexpr TreePosition tree() const { return tree_position; }
  constexpr HostPosition host() const { return host_position; }
  constexpr int root() const { return root_rank; }
  constexpr int rank() const { return my_rank; }
  constexpr int ranks() const { return rank_count; }
  constexpr int window() const { return slots; }
  constexpr int window(Index) const { return slots; }
  constexpr Chunks chunks(int shares) const { return {layout, shares, 0, 1, 1, 1}; }
  template <int In, int Out>
  constexpr TracePrims<In, Out> prims(const Peers<In>& ins, const Peers<Out>& outs) {
    return {events, ins, outs};
  }
  template <int In>
  constexpr TracePrims<In, 1> to_network(const Peers<In>& ins) {
    return {events, ins, {{-1}}, false, true};
  }
  template <int Out>
  constexpr TracePrims<1, Out> from_network(const Peers<Out>& outs) {
    return {events, {{-1}}, outs, true, false};
  }
};

/// True if all ranks complete over wires of `slots` slices, no contribution counts twice, no two
/// elements are mixed, and the result is complete. Hosts have `of_host` ranks.
template <class Op, class Algo>
constexpr bool plays(int ranks, int slots, int root = 0, int which_tree = 0, int of_host = 1000) {
  constexpr Index rounds = 3;  // chunks of each share
  std::vector<int> order(ranks);
  for (int i = 0; i < ranks; ++i) order[i] = (i * 1 + 1) % ranks;
  const bool splits = cuda::std::is_same_v<Op, AllReduce>;
  const bool gathers = cuda::std::is_same_v<Op, AllGather>;
  const bool scatters = cuda::std::is_same_v<Op, ReduceScatter>;
  const Index count = splits ? rounds * ranks - 1 : rounds;  // the last share is short
  Layout layout{count, scatters ? count : 0, gathers ? count : 0, splits};

  std::vector<TraceContext> context(ranks);
  for (int r = 0; r < ranks; ++r) {
    context[r].ring_position = {(r + ranks - 1) % ranks, ranks, order.data()};
    context[r].tree_position = tree_over_hosts(r, ranks, root, which_tree, of_host);
    context[r].root_rank = root;
    context[r].layout = layout;
    context[r].my_rank = r;
    context[r].rank_count = ranks;
    context[r].slots = slots;
    Algo::run(Op{}, context[r]);
  }
  std::vector<std::vector<Symbol>> out(ranks, std::vector<Symbol>(count * (gathers ? ranks : 1)));
  std::vector<std::vector<Symbol>> wire(ranks * ranks);
  std::vector<std::size_t> head(ranks * ranks), at(ranks);
  for (bool progress = true; progress;) {
    progress = false;
    for (int r = 0; r < ranks; ++r) {
      if (at[r] == context[r].events.size()) continue;
      const Event& e = context[r].events[at[r]];
      bool ready = true;
      for (const int p : e.in) {
        if (p < 0) break;
        ready = ready && head[p * ranks + r] < wire[p * ranks + r].size();
      }
      for (const int p : e.out) {
        if (p < 0) break;
        const int w = r * ranks + p;
        ready = ready && wire[w].size() - head[w] < std::size_t(slots);
      }
      if (!ready) continue;
      Symbol value;
      if ((e.does & loads) != 0) {
        value = e.own_is_output ? out[r][e.part.in] : Symbol{1u << r, e.part.in};
      }
      for (const int p : e.in) {
        if (p < 0) break;
        const int w = p * ranks + r;
        const Symbol got = wire[w][head[w]++];
        if ((value.ranks & got.ranks) != 0) return false;                    // counted twice
        if (value.ranks != 0 && value.element != got.element) return false;  // mixed up
        value = {value.ranks | got.ranks, got.element};
      }
      if ((e.does & stores) != 0) out[r][e.part.out] = value;
      for (const int p : e.out) {
        if (p < 0) break;
        wire[r * ranks + p].push_back(value);
      }
      ++at[r];
      progress = true;
    }
  }
  const unsigned everyone = (1u << ranks) - 1;
  for (int r = 0; r < ranks; ++r) {
    if (at[r] != context[r].events.size()) return false;  // deadlock
    for (Index i = 0; i < Index(out[r].size()); ++i) {
      Symbol want{everyone, i};
      if (gathers) want = {1u << (i / count), i % count};
      if (scatters) want.element = r * count + i;
      if (cuda::std::is_same_v<Op, Broadcast>) want.ranks = 1u << root;
      if (cuda::std::is_same_v<Op, Reduce> && r != root) want = {};
      if (out[r][i] != want) return false;
    }
    for (int p = 0; p < ranks; ++p) {
      if (head[r * ranks + p] != wire[r * ranks + p].size()) return false;  // left over
    }
  }
  return true;
}

/// True if an algorithm of messages completes. `advance` is called on the ranks in turn. Rank r has
/// 1 + (r + p) % 4 slices for rank p.
template <class Algo>
constexpr bool exchanges(int ranks, int slots) {
  std::vector<int> sent(ranks * ranks), taken(ranks * ranks);
  struct Pairs {
    int me, n, slots;
    std::vector<int>&sent, &taken;
    const int* order;
    bool moved = false;
    constexpr int visits() const { return Algo::visits(n); }
    constexpr bool visit(int i) {
      const auto next = Algo::visit_at(RingPosition{me, n, order}, i);
      return next.sends ? send_some(next.peer) : recv_some(next.peer);
    }
    constexpr int server() const { return 0; }
    constexpr int servers() const { return 1; }
    constexpr int slices(int from, int to) const { return 1 + (from + to) % 4; }
    constexpr bool send_some(int peer) {
      const int w = me * n + peer;
      if (sent[w] == slices(me, peer)) return false;
      if (sent[w] - taken[w] < slots) ++sent[w], moved = true;
      return sent[w] < slices(me, peer);
    }
    constexpr bool recv_some(int peer) {
      const int w = peer * n + me;
      if (taken[w] == slices(peer, me)) return false;
      if (taken[w] < sent[w]) ++taken[w], moved = true;
      return taken[w] < slices(peer, me);
    }
  };
  std::vector<int> order(ranks);
  for (int i = 0; i < ranks; ++i) order[i] = i;
  for (bool left = true; left;) {
    left = false;
    bool moved = false;
    for (int r = 0; r < ranks; ++r) {
      Pairs pairs{r, ranks, slots, sent, taken, order.data()};
      left = Algo::advance(pairs) || left;
      moved = moved || pairs.moved;
    }
    if (left && !moved) return false;  // deadlock
  }
  for (int r = 0; r < ranks; ++r) {
    for (int p = 0; p < ranks; ++p) {
      const int want = r == p ? 0 : 1 + (r + p) % 4;
      if (sent[r * ranks + p] != want || taken[r * ranks + p] != want) return false;
    }
  }
  return true;
}

/// `Plays(ranks)`, a constant of its own for each number of ranks: all together are too long a
/// computation for a compiler.
template <auto Plays, int Ranks>
inline constexpr bool proved_for = Plays(Ranks);
template <auto Plays, int... N>
constexpr bool proved_for_all(std::integer_sequence<int, N...>) {
  static_assert((proved_for<Plays, N + 2> && ...));
  return true;
}
/// True if the player succeeds for 2 to 9 ranks: powers of two and others, at compile time, where
/// every undefined step is an error. The time grows with the fourth power of the ranks.
template <auto Plays>
inline constexpr bool proved = proved_for_all<Plays>(std::make_integer_sequence<int, 8>{});
/// Returns the smallest number of ranks up to 17 for which the player fails, or 0. The same player
/// as of `proved`, at run time.
template <class Plays>
int fails_for(Plays plays) {
  for (int ranks = 2; ranks <= 17; ++ranks) {
    if (!plays(ranks)) return ranks;
  }
  return 0;
}

/// Argument of an algorithm's `peers` that records the named ranks.
struct PeerSink {
  int place;               // on the ring
  std::vector<int> order;  // the ring's
  int root_rank = 0;
  std::set<int> in{}, out{};
  bool repeats = false;  // it named one twice
  int rank() const { return order[std::size_t(place)]; }
  int ranks() const { return int(order.size()); }
  int root() const { return root_rank; }
  RingPosition ring() const { return {place, ranks(), order.data()}; }
  void from(int peer) { repeats = !in.insert(peer).second || repeats; }
  void to(int peer) { repeats = !out.insert(peer).second || repeats; }
};
/// Those of all ranks, by rank; `turn` is the rank at the ring's first place.
template <class Algo>
std::vector<PeerSink> peers_of(int ranks, int turn = 0, int root = 0) {
  std::vector<int> order;
  for (int i = 0; i < ranks; ++i) order.push_back((i + turn) % ranks);
  std::vector<PeerSink> sinks;
  for (int r = 0; r < ranks; ++r) {
    sinks.push_back({(r + ranks - turn % ranks) % ranks, order, root});
    Algo::peers(sinks.back());
  }
  return sinks;
}
/// True if every sender has a receiver that expects it, every receiver has a sender, and no rank
/// sends to itself.
inline bool peers_agree(const std::vector<PeerSink>& sinks) {
  for (const PeerSink& sink : sinks) {
    const int rank = sink.rank(), ranks = sink.ranks();
    for (const int peer : sink.out) {
      if (peer < 0 || peer >= ranks || peer == rank) return false;
      if (sinks[std::size_t(peer)].in.count(rank) == 0) return false;
    }
    for (const int peer : sink.in) {
      if (peer < 0 || peer >= ranks || sinks[std::size_t(peer)].out.count(rank) == 0) return false;
    }
  }
  return true;
}

}  // namespace ccl::test
