#pragma once

#include <ccl/detail/compose/default_plans.hpp>
#include <ccl/detail/exec/launch_shape.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/detail/sim/program.hpp>
#include <ccl/types/operations.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Argument of an algorithm's `peers`.
struct SimPositions {
  const topo::Arrangement& arrangement;
  RingPosition ring_position;
  int my_rank, rank_count, root_rank, channel;
  std::vector<int> in{}, out{};
  // As in the communicator's positions.
  mutable topo::EdgeUse use = topo::EdgeUse::pair;
  int rank() const { return my_rank; }
  int ranks() const { return rank_count; }
  int root() const { return root_rank; }
  RingPosition ring() const {
    use = topo::EdgeUse::ring;
    return ring_position;
  }
  TreePosition tree() const {
    use = root_rank < 0 ? topo::EdgeUse::tree : topo::EdgeUse::rooted_tree;
    return arrangement.tree(my_rank, root_rank, channel);
  }
  void from(int peer) { in.push_back(peer); }
  void to(int peer) { out.push_back(peer); }
};

/// Tree of a launch: one tree of the root, or the double tree (-1).
template <class Op, class Algo>
constexpr int sim_root(int root) {
  if constexpr (Op::rooted) return root;
  if constexpr (requires { Algo::one_tree; }) {
    if (Algo::one_tree) return 0;
  }
  return -1;
}

/// Plan that a communicator of these machines would take.
template <class Algo, class Proto>
Plan sim_plan(const sim::Cluster& cluster, const SimTeams& teams) {
  const auto medium = int(cluster.on_cpus() && !teams.networked ? Medium::host_memory
                          : teams.networked                     ? Medium::network
                                                                : Medium::gpu_memory);
  if (cluster.on_cpus()) {
    return default_host_plans<Proto>(teams.rank_stride > 1 ? 1 : cluster.locals())
        .by_medium[std::size_t(medium)];
  }
  const topo::Arrangement& of = *teams.arrangement;
  const NetworkFacts between{true, of.between_gbs(), of.ring_count()};
  return default_device_plans<Algo, Proto>(between, host_facts(cluster), default_max_blocks)
      .by_medium[std::size_t(medium)];
}

/// Stage of a plan, without channels and positions. `wire` is a wire of it.
template <class Proto, class R>
SimStage sim_stage(Plan plan, Wire& wire) {
  SimStage stage;
  if (plan.slot_bytes == 0) plan.slot_bytes = Proto::default_slot_bytes;
  stage.plan = plan;
  stage.packing = packing_of<Proto>();
  wire.slot_count = plan.slot_count;
  wire.slot_packets = int(plan.slot_bytes / Index(sizeof(Packet)));
  stage.slice_bytes = WireFormat<SoloLane, Proto, R, 16>::slice_capacity(wire, plan.slice_steps) *
                      Index(sizeof(typename R::Type));
  stage.overhead = double(plan.slot_bytes) * plan.slice_steps / double(stage.slice_bytes);
  return stage;
}

/// Channels of a message on a GPU, and their share of a block, as in the launch of a kernel.
template <class Proto>
void use_channels(SimStage& stage, Index bytes, int max_lanes) {
  const LaunchShape shape =
      launch_shape(bytes, stage.plan.channels, stage.plan.channel_bytes,
                   group_lanes(Proto::carries_flags), max_lanes, default_max_blocks);
  stage.channels = shape.channels;
  stage.channels_per_block = double(shape.channels) / shape.blocks;
}

/// One operation of one algorithm on all teams, ready to be recorded.
template <class Op, class Algo, class Proto>
class SimLaunch {
 public:
  using R = cuda::std::conditional_t<Op::reduces, Reduction<Sum, float>, Bytes>;

  SimLaunch(const sim::Cluster& cluster, const SimTeams& teams, Index bytes,
            const sim::Options& options)
      : cluster_{cluster}, teams_{teams}, root_{options.root} {
    const topo::Arrangement& arrangement = *teams.arrangement;
    const int ranks = teams.ranks;
    stage_ = sim_stage<Proto, R>(
        options.plan ? *options.plan : sim_plan<Algo, Proto>(cluster, teams), wire_);
    wire_.slots = &packet_;

    constexpr Index element = sizeof(typename R::Type);
    constexpr bool gathers = cuda::std::is_same_v<Op, AllGather>;
    constexpr bool scatters = cuda::std::is_same_v<Op, ReduceScatter>;
    Index count = bytes / element;
    if (gathers || scatters) count = div_up<Index>(count, ranks);
    layout_ = {count, scatters ? count : 0, gathers ? count : 0,
               cuda::std::is_same_v<Op, AllReduce>};
    stage_.channels = stage_.plan.channels;
    if (!cluster.on_cpus()) {
      use_channels<Proto>(stage_, count * element, WireBody<Op, Algo, Proto, 16, R>::max_lanes);
    }

    const int ways = std::min(arrangement.ring_count(), stage_.plan.channels);
    for (int w = 0; w < ways; ++w) {
      const std::vector<int>& order = arrangement.ring(w);
      places_.emplace_back(std::size_t(ranks));
      for (int i = 0; i < ranks; ++i) places_.back()[std::size_t(order[std::size_t(i)])] = i;
    }
    wires_.assign(std::size_t(stage_.channels - 1) * ranks + 1, wire_);
  }

  /// True if all traces and wires repeat after `period` nodes.
  bool repeats(int period) {
    if (Op::rooted || cluster_.nodes() % period != 0) return false;
    if (!rings_repeat(cluster_, teams_, period)) return false;
    const int nodes = cluster_.nodes(), stride = nodes < 64 ? 1 : nodes / 64;
    for (int local = 0; local < cluster_.locals(); ++local) {
      for (int c = 0; c < stage_.channels; ++c) {
        for (int node = period; node < nodes; node += node < 2 * period ? 1 : stride) {
          const int like = node % period;
          if (relative(node, local, c) != relative(like, local, c)) return false;
          // A root and its only child have equal peers, but run different steps.
          if (node < 2 * period && first_round(node, local, c) != first_round(like, local, c)) {
            return false;
          }
        }
      }
    }
    return true;
  }

  /// Records all steps of the ranks of the first `nodes` nodes.
  SimStage record(int nodes, Index limit) {
    SimStage stage = stage_;
    std::vector<SimTrace> firsts;
    for (int rank = 0; rank < nodes * cluster_.locals(); ++rank) {
      for (int c = 0; c < stage.channels; ++c) {
        SimRecord first = run(rank, c, 1, false);
        first.trace.all_rounds = rounds_of(c);
        std::size_t found = 0;
        while (found < firsts.size() && firsts[found] != first.trace) ++found;
        if (found == firsts.size()) {
          firsts.push_back(first.trace);
          stage.traces.push_back(run(rank, c, limit, true).trace);
        }
        SimPosition position{rank, c, int(found)};
        position.use = use_of(rank, c);
        for (const int peer : first.in) position.in.push_back(global(rank, peer));
        for (const int peer : first.out) position.out.push_back(global(rank, peer));
        stage.positions.push_back(std::move(position));
      }
    }
    return stage;
  }

  /// Number of slices of one rank's channels, and of rounds of the longest channel.
  struct Length {
    double slices = 0, rounds = 0;
    Index least = 8;  // rounds until the pipe is full and its pace is visible
  };
  Length length() {
    Length all;
    for (int c = 0; c < stage_.channels; ++c) {
      const SimTrace trace = run(0, c, 1, true).trace;
      double each = 0;
      for (const SimStep& s : trace.steps) each += double(div_up(s.bytes, stage_.slice_bytes));
      all.slices += each * trace.all_rounds;
      all.rounds = std::max(all.rounds, trace.all_rounds);
    }
    if constexpr (requires(TreePosition position) { Algo::lead(position, Window{}); } &&
                  is_one_of<Op, AllReduce>) {
      const Window wires{std::max(1, stage_.plan.slot_count / stage_.plan.chunk_steps)};
      for (int rank = 0; rank < teams_.ranks; ++rank) {
        const TreePosition position = teams_.arrangement->tree(rank, sim_root<Op, Algo>(root_), 0);
        all.least = std::max<Index>(all.least, 2 * Algo::lead(position, wires));
      }
    }
    return all;
  }
  const Plan& plan() const { return stage_.plan; }

 private:
  struct Window {
    int chunks = 1;
    int window() const { return chunks; }
  };
  int team_of(int rank) const {
    return teams_.rank_stride > 1 ? rank % teams_.rank_stride : rank / teams_.ranks;
  }
  int in_team(int rank) const {
    return teams_.rank_stride > 1 ? rank / teams_.rank_stride : rank % teams_.ranks;
  }
  /// Rank in the cluster of a peer in the team of `rank`.
  int global(int rank, int peer) const {
    return team_of(rank) * teams_.team_stride + peer * teams_.rank_stride;
  }
  RingPosition ring(int rank, int channel) const {
    const auto way = std::size_t(channel) % places_.size();
    return {places_[way][std::size_t(in_team(rank))], teams_.ranks,
            teams_.arrangement->ring(int(way)).data()};
  }
  SimTrace first_round(int node, int local, int channel) {
    return run(node * cluster_.locals() + local, channel, 1, false).trace;
  }
  /// Use of a position's edges. Only the arrangement of the whole cluster knows NICs.
  topo::EdgeUse use_of(int rank, int channel) const {
    if (teams_.arrangement != &cluster_.whole()) return topo::EdgeUse::pair;
    SimPositions positions{*teams_.arrangement, ring(rank, channel),       in_team(rank),
                           teams_.ranks,        sim_root<Op, Algo>(root_), channel};
    Algo::peers(positions);
    return positions.use;
  }
  /// Peers of a position, in and out, as distances in nodes and places in these nodes.
  std::vector<std::pair<int, int>> relative(int node, int local, int channel) const {
    const int rank = node * cluster_.locals() + local;
    SimPositions positions{*teams_.arrangement, ring(rank, channel),       in_team(rank),
                           teams_.ranks,        sim_root<Op, Algo>(root_), channel};
    Algo::peers(positions);
    std::vector<std::pair<int, int>> all;
    for (const auto* peers : {&positions.in, &positions.out}) {
      for (const int peer : *peers) {
        const int there = global(rank, peer), nodes = cluster_.nodes();
        all.emplace_back((there / cluster_.locals() - node + nodes) % nodes,
                         there % cluster_.locals());
      }
      all.emplace_back(-1, -1);
    }
    return all;
  }
  /// Number of rounds of a channel; equal on all ranks.
  double rounds_of(int channel) {
    if (rounds_.empty()) {
      for (int c = 0; c < stage_.channels; ++c) {
        rounds_.push_back(run(0, c, 1, true).trace.all_rounds);
      }
    }
    return rounds_[std::size_t(channel)];
  }
  SimRecord run(int rank, int channel, Index limit, bool measures) {
    rings_.resize(std::size_t(stage_.channels));
    trees_.resize(std::size_t(stage_.channels));
    rings_[std::size_t(channel)] = ring(rank, channel);
    trees_[std::size_t(channel)] =
        teams_.arrangement->tree(in_team(rank), sim_root<Op, Algo>(root_), channel);
    WireWork<R> work = [&] {
      if constexpr (Op::reduces) return WireWork<R>{R{Sum{}, teams_.ranks}};
      if constexpr (!Op::reduces) return WireWork<R>{R{}};
    }();
    work.in = work.out = wires_.data();
    work.rings = rings_.data();
    work.trees = trees_.data();
    work.rank = in_team(rank);
    work.ranks = teams_.ranks;
    work.root = root_;
    work.channels = stage_.channels;
    work.slot_count = wire_.slot_count;
    work.slot_packets = wire_.slot_packets;
    work.slice_steps = stage_.plan.slice_steps;
    work.chunk_steps = stage_.plan.chunk_steps;
    work.layout = layout_;
    SimRecord record;
    record.limit = limit;
    record.measures = measures;
    SimContext<Op, Proto, R> context{work, channel, record};
    Algo::run(Op{}, context);
    if (measures) record.sum_up();
    return record;
  }

  const sim::Cluster& cluster_;
  SimTeams teams_;
  int root_;
  SimStage stage_;
  Layout layout_;
  Packet packet_{};
  Wire wire_;
  std::vector<Wire> wires_;
  std::vector<RingPosition> rings_;
  std::vector<TreePosition> trees_;
  std::vector<double> rounds_;            // [channel]
  std::vector<std::vector<int>> places_;  // [way][rank of the team]
};

}  // namespace ccl::detail
