#pragma once

#include <ccl/types/word.hpp>

#include <string_view>

namespace ccl {

/// Cost terms of an algorithm for one operation. The message of an operation is its larger buffer:
/// `count` elements of AllReduce, the shares of all ranks of AllGather.
struct CostTerms {
  double hops = 0;    ///< sequential hops on the longest route
  double volume = 0;  ///< messages that cross the busiest direction of the busiest rank
  /// Volume by Simple over the NVLinks of one host on up to 32 blocks, whose copies are slower than
  /// their wires; 0: `volume`.
  double volume_of_few_blocks = 0;
  /// Hops in the same case: few blocks have more of a message in each step; 0: `hops`.
  double hops_of_few_blocks = 0;

  /// Volume of a message on `blocks` blocks.
  constexpr double volume_on(int blocks) const {
    return blocks <= 32 && volume_of_few_blocks > 0 ? volume_of_few_blocks : volume;
  }
  /// Hops of a message on `blocks` blocks.
  constexpr double hops_on(int blocks) const {
    return blocks <= 32 && hops_of_few_blocks > 0 ? hops_of_few_blocks : hops;
  }
  /// The terms where blocks are no bottleneck.
  constexpr CostTerms of_many_blocks() const { return {hops, volume}; }
};

/// Order in which an algorithm combines the ranks' values of one element. Two algorithms of the
/// same order produce the same bits.
enum class SumOrder {
  varies,   ///< depends on the element's place in the message, and so on the message size
  by_rank,  ///< ((0 + 1) + 2) + ...
  tree,  ///< each node adds its own value, then its children's in order; one tree for all elements
  ordered_tree,   ///< tree whose nodes are in rank order: any associative op gives 0, 1, 2, ...
  ordered_chain,  ///< 0 + (1 + (2 + ...))
  ring,  ///< once around the ring, ending at the result's rank: each rank's result in another order
  halves  ///< pairs, pairs of pairs, ...; AllReduce results agree only if op(a, b) is op(b, a)
};

namespace detail {

/// Kind of the slowest edge of a communicator.
enum class Path {
  nvlink,    // stores of a GPU into a peer's memory, whole lines at once
  pcie,      // stores of a GPU into a peer's memory, in smaller pieces
  gpu_host,  // GPUs through host memory
  gpu_net,   // GPUs through a proxy and a network
  shm,       // CPU ranks of one host
  net        // CPU ranks through a network
};
inline constexpr int path_count = 6;
std::string_view name(Path path);

/// Means by which an algorithm moves data. `switches`: multicast memory.
enum class Mover { wires, peers, engines, switches };
/// Signal by which a protocol's data shows that it has arrived. It decides the cost of a hop and of
/// a byte.
enum class Packing {
  simple,   // a count after the data
  ll,       // a flag in every 16 bytes
  ll128,    // a flag in every 128 bytes
  sentinel  // a nonzero word
};
inline constexpr int packing_count = 4;

/// Rates of one path, mover and packing.
struct Rates {
  double base_us = 0;    // us of a call: launch, first read of the data
  double hop_us = 0;     // us until a neighbor can continue
  double gbs = 1;        // GB/s of messages through one direction of a rank
  double block_gbs = 0;  // GB/s that one block of a GPU moves; 0: one block is as fast as many
  double few_gbs = 0;    // GB/s on up to 64 blocks, at most; 0: as on more
};

/// Returns the measured rates, or estimates if there are none; docs/internals/cost_model.md lists
/// the measured ones.
Rates rates(Path path, Mover mover, Packing packing);

/// Bandwidth inside the hosts of a communicator, as the topology found it. Equal on all ranks.
struct HostFacts {
  double gpu_gbs = 0;          // GB/s of the links of a GPU to the others; 0: unknown
  bool nvlink = false;         // these are NVLinks, and all GPUs reach each other by them
  int compute_capability = 0;  // lowest of the GPUs, 90 for Hopper; 0: unknown
};
/// Returns the rates inside a host: those of `rates`, in proportion to the bandwidth of the links
/// and, for NVLink, to what a block of the GPU's generation moves.
Rates rates_inside(Path path, Mover mover, Packing packing, const HostFacts& host);

/// Network between the hosts of a communicator, as the topology found it. Equal on all ranks.
struct NetworkFacts {
  bool rdma = false;    // all edges between hosts are RDMA
  double host_gbs = 0;  // GB/s that all rings carry from a host to the next; 0: unknown
  int rings = 1;        // of the topology
};
/// Returns the rates between hosts. Of GPUs over RDMA, these are published constants and the
/// bandwidth of the network, at most that inside `host`; else those of `rates_inside`.
Rates rates_between(Path path, Mover mover, Packing packing, const NetworkFacts& network,
                    const HostFacts& host = {});
/// Returns the number of channels, 1, 2 or 4, that each of `ways` rings or trees between hosts
/// takes on GPUs. With fewer, the blocks that run them are slower than the NICs over RDMA. More
/// than `max_blocks` blocks run at no time. The plans of the runtime, the chooser and the simulator
/// ask this function.
int channels_of_way(Packing packing, int ways, const NetworkFacts& network, const HostFacts& host,
                    int max_blocks);

/// Returns the predicted us of a message of `bytes` on a GPU with `blocks` blocks.
double predict_us(const Rates& rates, const CostTerms& cost_terms, double bytes, int blocks);
/// Returns the predicted us if the fraction `far` (0 to 1) of the hops goes between hosts. The
/// other hops cost the rates `near`.
double predict_us(const Rates& rates, const Rates& near, double far, const CostTerms& cost_terms,
                  double bytes, int blocks);

/// Returns the us that a call of a level adds to its own time. Its ranks arrive from other levels
/// and wait for each other again.
double level_us(Path path);
/// Returns the scratch bytes of an algorithm on levels. Longer messages go in pieces.
constexpr Index level_scratch_bytes(bool on_gpu) {
  return Index{on_gpu ? 4 : 1} << 20;
}

/// Step of an algorithm that runs other algorithms on levels, one after the other.
struct LevelStep {
  bool outer = false;        // true: between hosts; false: inside each host
  bool shared = false;       // true: each rank of a host carries its share of the message
  bool once_a_host = false;  // true: one call for each host's part of the message
  bool waits = false;        // true: ranks arrive late between hosts too, so `level_us` is added
  Mover mover = Mover::wires;
  Packing packing = Packing::simple;
  int line_bytes = 8;  // bytes that must be written at once
  // True if the algorithm runs on so many ranks; null: any number.
  bool (*takes_ranks)(int ranks) = nullptr;
  CostTerms (*cost_terms)(int ranks) = nullptr;
  // Blocks of a message over a network; null: all.
  int (*blocks_over_network)(Index bytes, const NetworkFacts& network, const HostFacts& host,
                             int max_blocks) = nullptr;
};

/// Returns the fraction of its hops that an algorithm makes between hosts; 1 by default.
template <class Op, class Algo>
constexpr double inter_node_fraction(int ranks, int hosts) {
  if constexpr (requires { Algo::inter_node_fraction(2, 1); })
    return Algo::inter_node_fraction(ranks, hosts);
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

/// Returns the cost terms that the algorithm states, or those of a ring by default.
template <class Op, class Algo>
constexpr CostTerms cost_terms_of(int ranks) {
  if constexpr (requires { Algo::template cost_terms<Op>(2); }) {
    return Algo::template cost_terms<Op>(ranks);
  } else {
    return {2.0 * (ranks - 1), 2};
  }
}
/// Returns the number of messages that cross the busiest direction of a host's network. The default
/// is the volume of a rank.
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
