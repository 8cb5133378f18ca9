#pragma once

#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/ops.hpp>
#include <ccl/collective/default_plans.hpp>
#include <ccl/cost.hpp>
#include <ccl/host_lanes.hpp>
#include <ccl/proto/wire_context.hpp>
#include <ccl/reduction.hpp>
#include <ccl/topo/arrange.hpp>
#include <ccl/topo/path.hpp>
#include <ccl/topo/search.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace ccl::sim {

/// Machines of one kind, side by side. Between their NICs is a network that is never the
/// bottleneck: what a NIC sends, another can take. Rank r is GPU r % locals of node r / locals.
class Cluster {
 public:
  /// Searches the machine's channels and joins them over the nodes, as a communicator does.
  static Result<Cluster> of(const topo::Graph& machine, int nodes,
                            const topo::PathRules& rules = {});

  int nodes() const { return nodes_; }
  int locals() const { return int(gpus_.size()); }
  int ranks() const { return nodes_ * locals(); }
  bool on_cpus() const { return on_cpus_; }
  const topo::Graph& machine() const { return graph_; }
  const topo::Paths& paths() const { return paths_; }
  const topo::PathRules& rules() const { return rules_; }
  /// Node of a local rank in `machine`.
  int gpu(int local) const { return gpus_[std::size_t(local)]; }
  /// Of all ranks.
  const topo::Arrangement& whole() const { return whole_; }
  /// Of one node's ranks by themselves, and of one rank of each node.
  const topo::Arrangement& inside() const { return inside_; }
  const topo::Arrangement& across() const { return across_; }

 private:
  topo::Graph graph_;
  topo::Paths paths_;
  topo::PathRules rules_;
  int nodes_ = 1;
  bool on_cpus_ = false;
  std::vector<int> gpus_;
  topo::Arrangement whole_, inside_, across_;
};

/// What is asked. The message is the operation's larger buffer, as in the cost model: what a rank
/// contributes to AllReduce, all ranks' shares of AllGather.
struct Options {
  std::optional<Plan> plan;      // else what a communicator would take
  std::optional<double> net_us;  // of a step over the network, else the cost model's
  int root = 0;
  /// Slices that are replayed, at most: of a longer run only the first rounds are (but enough to
  /// fill the pipe), and the rest at the pace of their middle half.
  Index budget = 5'000'000;
  bool every_node = false;  // replay each, even where they repeat
};

/// What one link of the machine carries, on the node where it carries most.
struct LinkLoad {
  std::string name;  // "GPU/0-1000 -> NVS/0-0"
  int node = 0;
  double gbs = 0;
  double bytes = 0;  // payload and flags
  double busy = 0;   // part of the time
};

/// What would happen.
struct Report {
  std::string name;  // "all_reduce/Ring/Simple"
  Index bytes = 0;
  int ranks = 0, nodes = 0;
  double us = 0;
  double bus_gbs = 0;       // NCCL's bus bandwidth
  double sent_bytes = 0;    // by all ranks, payload
  Index steps = 0;          // of one channel of one rank, at most
  Index slices = 0;         // replayed
  int seat_classes = 0;     // traces recorded
  int period = 0;           // nodes after which all repeats: so many were replayed; 0: all nodes
  bool extended = false;    // longer than the budget: the pace of its rounds was taken on
  std::vector<Plan> plans;  // of each stage
  std::vector<LinkLoad> links;  // of each link in use, the busiest first

  std::string text() const;
  std::string json() const;
};

}  // namespace ccl::sim

namespace ccl::detail {

/// A step of a channel, as its algorithm took it: which of the channel's wires, and how much.
struct SimStep {
  static constexpr int most = 4;
  std::int16_t in[most] = {-1, -1, -1, -1}, out[most] = {-1, -1, -1, -1};
  std::uint32_t bytes = 0;
  float counted = 1;  // part of `bytes` that other ranks' steps of the same round have on average
};

/// What one class of seats does.
struct SimTrace {
  std::vector<SimStep> steps;
  double rounds = 0;      // recorded
  double all_rounds = 0;  // that there are
  int near = 0, far = 0;  // of a seat in a tree: they set the pace of later rounds
  friend bool operator==(const SimTrace&, const SimTrace&) = default;
};
inline bool operator==(const SimStep& a, const SimStep& b) {
  return std::equal(a.in, a.in + SimStep::most, b.in) &&
         std::equal(a.out, a.out + SimStep::most, b.out) && a.bytes == b.bytes &&
         a.counted == b.counted;
}

/// A trace with the peers whose wires it names.
struct SimRecord {
  SimTrace trace;
  std::vector<int> in, out;  // ranks of the team
  std::unordered_map<int, std::int16_t> in_at, out_at;
  float counted = 1;
  Index limit = 0;        // rounds that are recorded, at most
  bool measures = false;  // how many rounds there are

  static std::int16_t index(int rank, std::vector<int>& peers,
                            std::unordered_map<int, std::int16_t>& at) {
    const auto [found, added] = at.try_emplace(rank, std::int16_t(peers.size()));
    if (added) peers.push_back(rank);
    return found->second;
  }
};

/// The rounds of a channel with all shares as long as the first: what differs between ranks is only
/// who has a short or an empty share, which the time does not see and the bytes do (`counted`).
class SimChunks {
 public:
  SimChunks(const Chunks& real, int shares, SimRecord& record)
      : real_{real}, shares_{shares}, record_{&record} {
    if (record.measures) measure();
  }
  bool next() {
    if (round_++ >= record_->limit || !real_.next()) return false;
    count_ = real_.share(0).count;
    record_->counted = counted();
    return true;
  }
  Part share(int s) const {
    const Part real = real_.share(s);
    return {real.in, real.out, count_};
  }
  Part all() const { return share(0); }

 private:
  float counted() const {
    if (real_.share(shares_ - 1).count == count_) return 1;
    Index sum = 0;
    for (int s = 0; s < shares_; ++s) sum += real_.share(s).count;
    return float(double(sum) / (double(count_) * shares_));
  }
  void measure() {
    Chunks all = real_;
    double first = 0, rounds = 0, recorded = 0;
    for (Index n = 0; all.next(); ++n) {
      const auto count = double(all.share(0).count);
      if (n == 0) first = count;
      rounds += count / first;
      if (n < record_->limit) recorded = rounds;
    }
    record_->trace.all_rounds = rounds;
    record_->trace.rounds = recorded;
  }

  Chunks real_;
  int shares_;
  SimRecord* record_;
  Index round_ = 0, count_ = 0;
};

/// In place of `WirePrims`: notes what would be done.
struct SimPrims {
  SimRecord& record;
  SimStep wires;  // all of them
  int element_bytes;

  void lend() {}
  void own_is_output() {}
  void send(const Part& p) { note(false, true, p); }
  void copy_send(const Part& p) { note(false, true, p); }
  void recv(const Part& p) { note(true, false, p); }
  void recv_copy_send(const Part& p) { note(true, true, p); }
  void recv_reduce_send(const Part& p) { note(true, true, p); }
  void recv_reduce_copy(const Part& p) { note(true, false, p); }
  void recv_reduce_copy_send(const Part& p) { note(true, true, p); }
  void recv_reduce_finish_send(const Part& p) { note(true, true, p); }

 private:
  void note(bool gets, bool puts, const Part& part) {
    if (part.count == 0) return;
    SimStep step = wires;
    const SimStep none;
    if (!gets) std::copy_n(none.in, SimStep::most, step.in);
    if (!puts) std::copy_n(none.out, SimStep::most, step.out);
    step.bytes = std::uint32_t(part.count * element_bytes);
    step.counted = record.counted;
    record.trace.steps.push_back(step);
  }
};

/// What an algorithm is given: the context of a launch, whose primitives only note.
template <class Op, class Proto, class R>
class SimContext : public WireContext<Op, SoloLane, Proto, R, 16> {
 public:
  using Base = WireContext<Op, SoloLane, Proto, R, 16>;
  SimContext(const WireWork<R>& work, int channel, SimRecord& record)
      : Base{SoloLane{}, work, channel}, record_{record} {}

  TreeSeat tree() const {
    const TreeSeat seat = Base::tree();
    record_.trace.near = seat.near;
    record_.trace.far = seat.far;
    return seat;
  }
  SimChunks chunks(int shares) const { return {Base::chunks(shares), shares, record_}; }
  template <int In, int Out>
  SimPrims prims(const Peers<In>& ins, const Peers<Out>& outs) const {
    static_assert(In <= SimStep::most && Out <= SimStep::most);
    SimPrims prims{record_, {}, int(sizeof(typename R::Type))};
    for (int i = 0; i < In; ++i) {
      if (ins.rank[i] < 0) continue;
      prims.wires.in[i] = SimRecord::index(ins.rank[i], record_.in, record_.in_at);
    }
    for (int o = 0; o < Out; ++o) {
      if (outs.rank[o] < 0) continue;
      prims.wires.out[o] = SimRecord::index(outs.rank[o], record_.out, record_.out_at);
    }
    return prims;
  }

 private:
  SimRecord& record_;
};

/// Teams that run one operation at a time, each by itself: rank r of team t is rank
/// t * team_stride + r * rank_stride of the cluster.
struct SimTeams {
  const topo::Arrangement* arrangement = nullptr;
  int teams = 1, ranks = 1, team_stride = 0, rank_stride = 1;
  bool networked = false;
};

/// A channel of a rank: its trace, and the ranks of the cluster at the other ends of its wires.
struct SimSeat {
  int rank = 0, channel = 0, trace = 0;
  std::vector<int> in{}, out{};
};

/// One launch on every rank.
struct SimStage {
  Plan plan;
  int channels = 1;  // in use
  int channels_per_block = 1;
  Packing packing = Packing::simple;
  double overhead = 1;            // bytes on a wire for each of payload
  std::uint32_t slice_bytes = 0;  // payload
  std::vector<SimTrace> traces;
  std::vector<SimSeat> seats;
};

/// What is replayed: stages one after the other on each rank.
struct SimProgram {
  std::vector<SimStage> stages;
  int period = 0;  // see `sim::Report`
};

struct SimOutcome {
  double us = 0;
  std::vector<double> stage_us;
  Index slices = 0;
  double payload = 0;
  std::vector<sim::LinkLoad> links;
};
Result<SimOutcome> replay(const sim::Cluster& cluster, const SimProgram& program,
                          const sim::Options& options);
Result<sim::Report> report_of(const sim::Cluster& cluster, const SimProgram& program,
                              const sim::Options& options, std::string name, std::string_view op,
                              Index bytes);
/// One after the other.
sim::Report joined(sim::Report first, const sim::Report& then);
Result<void> check_options(const sim::Cluster& cluster, Index bytes, const sim::Options& options);

/// Whether a team's rings look the same from every `period`-th node.
bool rings_repeat(const sim::Cluster& cluster, const SimTeams& teams, int period);

/// What an algorithm's `peers` is given.
struct SimSeats {
  const topo::Arrangement& arrangement;
  RingSeat ring_seat;
  int my_rank, rank_count, root_rank, channel;
  std::vector<int> in{}, out{};
  int rank() const { return my_rank; }
  int ranks() const { return rank_count; }
  int root() const { return root_rank; }
  RingSeat ring() const { return ring_seat; }
  TreeSeat tree() const { return arrangement.tree(my_rank, root_rank, channel); }
  void from(int peer) { in.push_back(peer); }
  void to(int peer) { out.push_back(peer); }
};

/// The tree that a launch takes: one tree of the root's, or the double tree (-1).
template <class Op, class Algo>
constexpr int sim_root(int root) {
  if constexpr (Op::rooted) return root;
  if constexpr (requires { Algo::one_tree; }) {
    if (Algo::one_tree) return 0;
  }
  return -1;
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
    stage_.plan = options.plan ? *options.plan : default_plan();
    if (stage_.plan.slot_bytes == 0) stage_.plan.slot_bytes = Proto::default_slot_bytes;
    stage_.packing = packing_of<Proto>();
    wire_.slot_count = stage_.plan.slot_count;
    wire_.slot_packets = int(stage_.plan.slot_bytes / Index(sizeof(Packet)));
    wire_.slots = &packet_;
    const Index slice =
        WirePrims<SoloLane, Proto, R, 16, 1, 1>::slice_capacity(wire_, stage_.plan.slice_steps) *
        Index(sizeof(typename R::Type));
    stage_.slice_bytes = std::uint32_t(slice);
    stage_.overhead = double(stage_.plan.slot_bytes) * stage_.plan.slice_steps / double(slice);

    constexpr Index element = sizeof(typename R::Type);
    constexpr bool gathers = cuda::std::is_same_v<Op, AllGather>;
    constexpr bool scatters = cuda::std::is_same_v<Op, ReduceScatter>;
    Index count = bytes / element;
    if (gathers || scatters) count = div_up<Index>(count, ranks);
    layout_ = {count, scatters ? count : 0, gathers ? count : 0,
               cuda::std::is_same_v<Op, AllReduce>};
    use_channels(count * element);

    const int ways = std::min(arrangement.ring_count(), stage_.plan.channels);
    for (int w = 0; w < ways; ++w) {
      const std::vector<int>& order = arrangement.ring(w);
      places_.emplace_back(std::size_t(ranks));
      for (int i = 0; i < ranks; ++i) places_.back()[std::size_t(order[std::size_t(i)])] = i;
    }
    wires_.assign(std::size_t(stage_.channels - 1) * ranks + 1, wire_);
  }

  /// Whether all traces and wires repeat after `period` nodes.
  bool repeats(int period) {
    if (Op::rooted || cluster_.nodes() % period != 0) return false;
    if (!rings_repeat(cluster_, teams_, period)) return false;
    const int nodes = cluster_.nodes(), stride = nodes < 64 ? 1 : nodes / 64;
    for (int local = 0; local < cluster_.locals(); ++local) {
      for (int c = 0; c < stage_.channels; ++c) {
        for (int node = period; node < nodes; node += node < 2 * period ? 1 : stride) {
          const int like = node % period;
          if (relative(node, local, c) != relative(like, local, c)) return false;
          // A root and its only child name each other alike, and do not do the same.
          if (node < 2 * period && first_round(node, local, c) != first_round(like, local, c)) {
            return false;
          }
        }
      }
    }
    return true;
  }

  /// All that the ranks of the first `nodes` nodes do.
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
        SimSeat seat{rank, c, int(found)};
        for (const int peer : first.in) seat.in.push_back(global(rank, peer));
        for (const int peer : first.out) seat.out.push_back(global(rank, peer));
        stage.seats.push_back(std::move(seat));
      }
    }
    return stage;
  }

  /// Slices of one rank's channels, and rounds of the longest of them.
  struct Length {
    double slices = 0, rounds = 0;
    Index least = 8;  // rounds in which the pipe is full and its pace to be seen
  };
  Length length() {
    Length all;
    for (int c = 0; c < stage_.channels; ++c) {
      const SimTrace trace = run(0, c, 1, true).trace;
      double each = 0;
      for (const SimStep& s : trace.steps) each += div_up(s.bytes, stage_.slice_bytes);
      all.slices += each * trace.all_rounds;
      all.rounds = std::max(all.rounds, trace.all_rounds);
    }
    if constexpr (requires(TreeSeat seat) { Algo::lead(seat, Window{}); } &&
                  one_of<Op, AllReduce>) {
      const Window wires{std::max(1, stage_.plan.slot_count / stage_.plan.chunk_steps)};
      for (int rank = 0; rank < teams_.ranks; ++rank) {
        const TreeSeat seat = teams_.arrangement->tree(rank, sim_root<Op, Algo>(root_), 0);
        all.least = std::max<Index>(all.least, 2 * Algo::lead(seat, wires));
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
  Plan default_plan() const {
    const auto through = int(cluster_.on_cpus() && !teams_.networked ? Through::host_memory
                             : teams_.networked                      ? Through::network
                                                                     : Through::gpu_memory);
    if (cluster_.on_cpus()) {
      return default_host_plans<Proto>(teams_.rank_stride > 1 ? 1 : cluster_.locals())
          .by_through[std::size_t(through)];
    }
    return default_device_plans<Algo, Proto>(teams_.arrangement->ring_count())
        .by_through[std::size_t(through)];
  }
  /// Channels that a message keeps busy on a GPU, as the launch of a kernel has it.
  void use_channels(Index bytes) {
    stage_.channels = stage_.plan.channels;
    if (cluster_.on_cpus()) return;
    constexpr int lanes = Proto::carries_flags                                 ? 32
                          : WireBody<Op, Algo, Proto, 16, R>::max_lanes >= 512 ? 512
                                                                               : 128;
    const Index alone = lanes == 32 ? 1024 : Index{32} * lanes;
    const Index worth = std::max(alone, stage_.plan.channel_bytes);
    stage_.channels = int(std::clamp<Index>(div_up(bytes, worth), 1, stage_.plan.channels));
    stage_.channels_per_block = std::min(4, WireBody<Op, Algo, Proto, 16, R>::max_lanes / lanes);
    stage_.channels_per_block = std::min(stage_.channels_per_block, stage_.channels);
  }
  int team_of(int rank) const {
    return teams_.rank_stride > 1 ? rank % teams_.rank_stride : rank / teams_.ranks;
  }
  int in_team(int rank) const {
    return teams_.rank_stride > 1 ? rank / teams_.rank_stride : rank % teams_.ranks;
  }
  /// The cluster's rank of a peer in the team of `rank`.
  int global(int rank, int peer) const {
    return team_of(rank) * teams_.team_stride + peer * teams_.rank_stride;
  }
  RingSeat ring(int rank, int channel) const {
    const auto way = std::size_t(channel) % places_.size();
    return {places_[way][std::size_t(in_team(rank))], teams_.ranks,
            teams_.arrangement->ring(int(way)).data()};
  }
  SimTrace first_round(int node, int local, int channel) {
    return run(node * cluster_.locals() + local, channel, 1, false).trace;
  }
  /// Peers of a seat: in and out, as nodes after its own and places in these.
  std::vector<std::pair<int, int>> relative(int node, int local, int channel) const {
    const int rank = node * cluster_.locals() + local;
    SimSeats seats{*teams_.arrangement, ring(rank, channel),       in_team(rank),
                   teams_.ranks,        sim_root<Op, Algo>(root_), channel};
    Algo::peers(seats);
    std::vector<std::pair<int, int>> all;
    for (const auto* peers : {&seats.in, &seats.out}) {
      for (const int peer : *peers) {
        const int there = global(rank, peer), nodes = cluster_.nodes();
        all.emplace_back((there / cluster_.locals() - node + nodes) % nodes,
                         there % cluster_.locals());
      }
      all.emplace_back(-1, -1);
    }
    return all;
  }
  /// The same on all ranks.
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
    work.slice_steps = stage_.plan.slice_steps;
    work.chunk_steps = stage_.plan.chunk_steps;
    work.layout = layout_;
    SimRecord record;
    record.limit = limit;
    record.measures = measures;
    SimContext<Op, Proto, R> context{work, channel, record};
    Algo::run(Op{}, context);
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
  std::vector<RingSeat> rings_;
  std::vector<TreeSeat> trees_;
  std::vector<double> rounds_;            // [channel]
  std::vector<std::vector<int>> places_;  // [way][rank of the team]
};

template <class Op, class Algo>
constexpr bool can_simulate() {
  if constexpr (is_hierarchical<Algo>) {
    return one_of<Op, AllReduce, AllGather, ReduceScatter> && Algo::rails &&
           Algo::template supports<Op>;
  } else {
    return one_of<Op, AllReduce, AllGather, ReduceScatter, Broadcast, Reduce> &&
           Algo::template supports<Op>;
  }
}
/// Whether the seats can be recorded: algorithms over wires, by steps; of two levels, those that go
/// along rails.
template <class Op, class Algo>
inline constexpr bool simulates = can_simulate<Op, Algo>();

/// Launches one after the other, as they were made.
template <class... Launches>
Result<sim::Report> replay_all(const sim::Cluster& cluster, const sim::Options& options,
                               std::string name, const char* op, Index bytes,
                               Launches&... launches) {
  SimProgram program;
  for (const int period : {1, 2, 4}) {
    if (!options.every_node && (launches.repeats(period) && ...)) {
      program.period = period;
      break;
    }
  }
  if constexpr (sizeof...(launches) > 1) {
    if (program.period == 0 && !options.every_node) {
      // Levels are alike on all ranks, and begin where the one before has ended: of those that
      // repeat, one node stands for all.
      std::optional<sim::Report> whole;
      Result<void> well;
      const auto play = [&](auto& launch) {
        if (!well) return;
        auto report = replay_all(cluster, options, name, op, bytes, launch);
        if (!report) {
          well = fail(std::move(report).error());
        } else {
          whole = whole ? joined(std::move(*whole), *report) : std::move(*report);
        }
      };
      (play(launches), ...);
      CCL_CHECK(std::move(well));
      return std::move(*whole);
    }
  }
  const int nodes = program.period > 0 ? program.period : cluster.nodes();
  double slices = 0;
  ((slices += launches.length().slices * nodes * cluster.locals()), ...);
  const double part = std::min(1.0, double(options.budget) / std::max(slices, 1.0));
  const auto limit = [&](const auto& length) {
    return part < 1 ? std::max<Index>(Index(length.rounds * part), length.least)
                    : Index(length.rounds) + 2;
  };
  ((program.stages.push_back(launches.record(nodes, limit(launches.length())))), ...);
  return report_of(cluster, program, options, std::move(name), op, bytes);
}

}  // namespace ccl::detail

namespace ccl::detail {

/// Level by level: ranks of a node, and the n-th ranks of all nodes.
template <class Op, class Levels, class Proto>
Result<sim::Report> simulate_levels(const sim::Cluster& cluster, Index bytes,
                                    const sim::Options& options) {
  using Inner = typename Levels::InnerAlgo;
  using Outer = typename Levels::OuterAlgo;
  using InnerProto = typename Levels::template InnerProto<Proto>;
  using OuterProto = typename Levels::template OuterProto<Proto>;
  const int nodes = cluster.nodes(), locals = cluster.locals();
  const SimTeams inside{&cluster.inside(), nodes, locals, locals, 1, false};
  const SimTeams across{&cluster.across(), locals, nodes, 1, locals, true};
  const std::string name = fmt::format("{}/{}/{}", Op::name, Levels::name, Proto::name);
  if (nodes == 1 || locals == 1) {
    SimLaunch<Op, Inner, InnerProto> inner{cluster, inside, bytes, options};
    SimLaunch<Op, Outer, OuterProto> outer{cluster, across, bytes, options};
    if (nodes == 1) return replay_all(cluster, options, name, Op::name, bytes, inner);
    return replay_all(cluster, options, name, Op::name, bytes, outer);
  }
  const Index rail = div_up<Index>(bytes, locals);
  SimLaunch<Op, Outer, OuterProto> outer{cluster, across, rail, options};
  if constexpr (cuda::std::is_same_v<Op, AllReduce>) {
    SimLaunch<ReduceScatter, Inner, InnerProto> first{cluster, inside, bytes, options};
    SimLaunch<AllGather, Inner, InnerProto> last{cluster, inside, bytes, options};
    return replay_all(cluster, options, name, Op::name, bytes, first, outer, last);
  } else {
    SimLaunch<Op, Inner, InnerProto> inner{cluster, inside, bytes, options};
    if constexpr (cuda::std::is_same_v<Op, AllGather>) {
      return replay_all(cluster, options, name, Op::name, bytes, outer, inner);
    } else {
      return replay_all(cluster, options, name, Op::name, bytes, inner, outer);
    }
  }
}

}  // namespace ccl::detail

namespace ccl::sim {

/// Runs the algorithm's own code on every class of seats, under the plan that a communicator would
/// take, and replays what it did on a virtual clock over the machine's links.
template <class Op, class Algo, class Proto>
Result<Report> simulate(const Cluster& cluster, Index bytes, const Options& options = {}) {
  static_assert(detail::simulates<Op, Algo>, "ccl: this algorithm has no steps to simulate");
  CCL_CHECK(detail::check_options(cluster, bytes, options));
  if constexpr (detail::is_hierarchical<Algo>) {
    return detail::simulate_levels<Op, Algo, Proto>(cluster, bytes, options);
  } else {
    const bool networked = cluster.nodes() > 1;
    detail::SimTeams all{&cluster.whole(), 1, cluster.ranks(), 0, 1, networked};
    detail::SimLaunch<Op, Algo, Proto> launch{cluster, all, bytes, options};
    return detail::replay_all(cluster, options,
                              fmt::format("{}/{}/{}", Op::name, Algo::name, Proto::name), Op::name,
                              bytes, launch);
  }
}

/// A composition by its names, as settings have them: "all_reduce", "Ring", "Simple"; case matters
/// not.
struct Composition {
  std::string op, algo, proto;
};
/// Those that can be simulated. Empty names stand for any; a name that is none of them is an error
/// that lists them.
Result<std::vector<Composition>> compositions(const Composition& wanted);
Result<Report> simulate(const Cluster& cluster, const Composition& what, Index bytes,
                        const Options& options = {});

}  // namespace ccl::sim
