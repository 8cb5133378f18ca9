#pragma once

#include <ccl/types/word.hpp>

#include <string_view>

namespace ccl {

/// What an algorithm makes of one operation, for the cost model. The message of an operation is its
/// larger buffer: `count` elements of AllReduce, all ranks' shares of AllGather.
struct CostTerms {
  double hops = 0;    // one after another, on the longest way
  double volume = 0;  // messages that cross the busiest direction of the busiest rank
};

/// In which order an algorithm combines the ranks' values of one element. Two algorithms of the
/// same order give the same bits.
enum class SumOrder {
  varies,   // with the element's place in the message, and so with the message's size
  by_rank,  // ((0 + 1) + 2) + ...
  tree,     // each node its own, then its children's from the first on; one tree for all elements
  ordered_tree,   // the same of a tree whose nodes follow each other as their ranks do: any
                  // associative op gives 0, 1, 2, ...
  ordered_chain,  // 0 + (1 + (2 + ...))
  ring,   // from the result's rank all around the ring to it: each rank's result another order
  halves  // pairs, pairs of pairs, ...; results of AllReduce only agree if op(a, b) is op(b, a)
};

namespace detail {

/// The dearest edge of a communicator.
enum class Path {
  nvlink,    // a GPU's stores into a peer's memory, whole lines at once
  pcie,      // the same, in smaller pieces
  gpu_host,  // GPUs through memory of the host
  gpu_net,   // GPUs through a proxy and a network
  shm,       // CPU ranks of one host
  net        // CPU ranks through a network
};
inline constexpr int path_count = 6;
std::string_view name(Path path);

/// What moves an algorithm's data.
enum class Mover { wires, peers, engines };
/// How a protocol's data tells that it is there, which decides what a hop and a byte cost.
enum class Packing {
  simple,   // a count after the data
  ll,       // a flag in every 16 bytes
  ll128,    // a flag in every 128
  sentinel  // that it is not zero
};
inline constexpr int packing_count = 4;

/// Of one path, mover and packing.
struct Rates {
  double base_us = 0;    // of a call: launch, first look at the data
  double hop_us = 0;     // until a neighbour can go on
  double gbs = 1;        // bytes of messages through one direction of a rank, 1e9 each second
  double block_gbs = 0;  // that one block of a GPU moves; 0: one is as good as many
};

/// Measured ones where there are any; docs/choosing.md says which.
Rates rates(Path path, Mover mover, Packing packing);

/// Microseconds of a message of `bytes` on a GPU with `blocks` blocks.
double predict_us(const Rates& rates, const CostTerms& cost_terms, double bytes, int blocks);
/// The same where `far` (0 to 1) of the hops go between hosts, and the others cost what `near`
/// says.
double predict_us(const Rates& rates, const Rates& near, double far, const CostTerms& cost_terms,
                  double bytes, int blocks);

/// Microseconds that a call of a level costs beside its own time: its ranks have come from others
/// and wait for each other anew.
double level_us(Path path);
/// Scratch memory of an algorithm on levels: longer messages go in pieces.
constexpr Index level_scratch_bytes(bool on_gpu) {
  return Index{on_gpu ? 4 : 1} << 20;
}

/// One of the steps of an algorithm that runs others on levels, one after the other.
struct LevelStep {
  bool outer = false;        // between hosts; else inside each
  bool shared = false;       // each of a host's ranks carries its share of the message
  bool once_a_host = false;  // a call for each host's part of the message
  bool waits = false;        // between hosts, too, ranks come late: `level_us` is to be added
  Mover mover = Mover::wires;
  Packing packing = Packing::simple;
  bool (*takes_ranks)(int ranks) = nullptr;  // null: any number
  CostTerms (*cost_terms)(int ranks) = nullptr;
};

/// Which part of its hops an algorithm makes between hosts: all, if it says nothing of it.
template <class Op, class Algo>
constexpr double inter_node_fraction(int ranks, int hosts) {
  if constexpr (requires { Algo::inter_node_fraction(2, 1); }) return Algo::inter_node_fraction(ranks, hosts);
  if constexpr (requires { Algo::template inter_node_fraction<Op>(2, 1); }) {
    return Algo::template inter_node_fraction<Op>(ranks, hosts);
  }
  return 1;
}
constexpr int doublings(int n) {
  int rounds = 0;
  for (int below = 1; below < n; below *= 2) ++rounds;
  return rounds;
}

template <class Proto>
constexpr Packing packing_of() {
  if constexpr (!Proto::carries_flags) return Packing::simple;
  if constexpr (requires { Proto::all_payload; }) return Packing::sentinel;
  return Proto::line_bytes >= 128 ? Packing::ll128 : Packing::ll;
}

/// What the algorithm says of itself; of one that says nothing, what a ring does.
template <class Op, class Algo>
constexpr CostTerms cost_terms_of(int ranks) {
  if constexpr (requires { Algo::template cost_terms<Op>(2); }) {
    return Algo::template cost_terms<Op>(ranks);
  } else {
    return {2.0 * (ranks - 1), 2};
  }
}
/// How many messages cross the busiest direction of a host's network, if the algorithm says it;
/// else as many as a rank's.
template <class Op, class Algo>
constexpr double inter_node_volume(int ranks, int hosts) {
  if constexpr (requires { Algo::template inter_node_volume<Op>(2, 1); }) {
    return Algo::template inter_node_volume<Op>(ranks, hosts);
  } else {
    return cost_terms_of<Op, Algo>(ranks).volume;
  }
}
template <class Op, class Algo>
constexpr SumOrder order_of() {
  if constexpr (requires { Algo::template order<Op>; }) {
    return Algo::template order<Op>;
  } else {
    return SumOrder::varies;
  }
}

}  // namespace detail
}  // namespace ccl
