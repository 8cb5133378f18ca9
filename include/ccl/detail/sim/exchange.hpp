#pragma once

#include <ccl/detail/exchange/batches.hpp>
#include <ccl/detail/sim/launch.hpp>
#include <ccl/detail/sim/program.hpp>
#include <ccl/types/operations.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Messages of one rank of an exchange in which each rank does as the others do.
template <class Op>
MessageTable sim_messages(int rank, int ranks, Index bytes, int distance) {
  MessageTable table{ranks};
  if constexpr (is_one_of<Op, SendRecv>) {
    table.send((rank + distance) % ranks, nullptr, bytes);
    table.recv((rank + ranks - distance) % ranks, nullptr, bytes);
  } else {
    const Index each = div_up<Index>(bytes, ranks);
    for (int p = 0; p < ranks; ++p) {
      table.send(p, nullptr, each);
      table.recv(p, nullptr, each);
    }
  }
  return table;
}

/// An exchange of messages over wires, ready to be recorded: launches as the runtime makes them.
template <class Op, class Algo, class Proto>
class SimExchangeLaunch {
 public:
  SimExchangeLaunch(const sim::Cluster& cluster, Index bytes, const sim::Options& options)
      : cluster_{cluster},
        bytes_{bytes},
        longest_{is_one_of<Op, SendRecv> ? bytes : div_up<Index>(bytes, cluster.ranks())},
        distance_{options.distance} {
    const SimTeams all{&cluster.whole(), 1, cluster.ranks(), 0, 1, cluster.networked()};
    networked_ = all.networked;
    plan_ = options.plan ? *options.plan : sim_plan<Algo, Proto>(cluster, all);
    const std::vector<int>& order = cluster.whole().ring(0);
    place_.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) place_[std::size_t(order[i])] = int(i);
    launches_of(
        0, [&](const auto& work, Index longest) { stages_.push_back(stage_of(work, longest)); });
  }

  /// True if all messages and NICs repeat after `period` nodes.
  bool repeats(int period) const {
    const int nodes = cluster_.nodes(), stride = std::max(1, nodes / 16);
    if (nodes % period != 0) return false;
    for (int local = 0; local < cluster_.locals(); ++local) {
      for (int like = 0; like < period; ++like) {
        const auto wanted = seen_from(like, local, stages_[0].channels);
        for (int node = like + period; node < nodes; node += div_up(stride, period) * period) {
          if (seen_from(node, local, stages_[0].channels) != wanted) return false;
        }
      }
    }
    return true;
  }

  /// Number of slices and of wires of one rank, and of rounds of the longest message.
  struct Length {
    double slices = 0, wires = 0, rounds = 0;
  };
  Length length() const {
    const SimStage& stage = stages_[0];
    const std::vector<Seen> seen = seen_from(0, 0, 1);
    Length all;
    all.rounds = std::max(1.0, double(longest_) / stage.channels / double(stage.slice_bytes));
    all.slices = all.rounds * double(seen.size()) * stage.channels;
    all.wires = double(seen.size()) / 2 * stage.channels;
    return all;
  }

  /// Records up to `limit` rounds of the ranks of the first `nodes` nodes.
  std::vector<SimStage> record(int nodes, Index limit) const {
    std::vector<SimStage> stages = stages_;
    for (int rank = 0; rank < nodes * cluster_.locals(); ++rank) {
      std::size_t at = 0;
      launches_of(rank, [&](auto& work, Index) { record_launch(stages[at++], work, rank, limit); });
    }
    return stages;
  }

 private:
  /// Peer of a message: nodes ahead, its place there, and both NICs of a channel.
  struct Seen {
    int nodes, local, net, peer_net;
    bool sends;
    friend bool operator==(const Seen&, const Seen&) = default;
  };

  RingPosition ring(int rank) const {
    return {place_[std::size_t(rank)], cluster_.ranks(), cluster_.whole().ring(0).data()};
  }
  template <class Work>
  void prepare(Work& work, int rank, const RingPosition* ring) const {
    work.rings = ring;
    work.rank = rank;
    work.ranks = cluster_.ranks();
    work.slot_count = plan_.slot_count;
    work.slot_packets = int(plan_.slot_bytes / Index{sizeof(Packet)});
    work.slice_steps = plan_.slice_steps;
    work.chunk_steps = plan_.chunk_steps;
    work.proxied = networked_;
  }
  /// Calls `f(work, bytes of the longest message)` for each launch of a rank. CPU lanes have one.
  template <class F>
  void launches_of(int rank, F f) const {
    MessageTable table = sim_messages<Op>(rank, cluster_.ranks(), bytes_, distance_);
    const std::vector<RingPosition> rings(std::size_t(plan_.channels), ring(rank));
    if (cluster_.on_cpus()) {
      WireWork<Bytes> work{Bytes{}};
      prepare(work, rank, rings.data());
      work.sends = table.sends.view(nullptr);
      work.recvs = table.recvs.view(nullptr);
      return f(work, longest_);
    }
    ExchangeWork work{WireWork<Bytes>{Bytes{}}};
    prepare(work, rank, rings.data());
    ExchangeBatches batches{table, rings[0]};
    do {
      const Index longest = batches.next(work);
      f(work, longest);
    } while (batches.left());
  }
  SimStage stage_of(const WireWork<Bytes>&, Index) const {
    Wire wire;
    SimStage stage = sim_stage<Proto, Bytes>(plan_, wire);
    stage.channels = plan_.channels;
    return stage;
  }
  SimStage stage_of(const ExchangeWork& work, Index longest) const {
    Wire wire;
    SimStage stage = sim_stage<Proto, Bytes>(plan_, wire);
    use_channels<Proto>(stage, longest, max_lanes);
    ExchangeWork sized{work};
    sized.channels = stage.channels;
    stage.servers = sized.servers_on(default_max_blocks, max_lanes / lanes);
    const LaunchShape shape =
        launch_shape(stage.channels * stage.servers, lanes, max_lanes, default_max_blocks);
    stage.channels_per_block = double(shape.channels) / shape.blocks;
    return stage;
  }
  template <class Work>
  void record_launch(SimStage& stage, Work& work, int rank, Index limit) const {
    work.channels = stage.channels;
    work.servers = stage.servers;
    if (!cluster_.on_cpus()) work.channel_bytes = channel_worth(lanes, plan_.channel_bytes);
    for (int c = 0; c < stage.channels; ++c) {
      for (int server = 0; server < stage.servers; ++server) {
        SimRecord record;
        record.limit = limit;
        SimExchangeContext<Work> context{work, c, server, stage.slice_bytes, record};
        Algo::run(Op{}, context);
        std::size_t found = 0;
        while (found < stage.traces.size() && stage.traces[found] != record.trace) ++found;
        if (found == stage.traces.size()) stage.traces.push_back(std::move(record.trace));
        stage.positions.push_back(
            {rank, c, int(found), std::move(record.in), std::move(record.out)});
      }
    }
  }
  /// Messages of a rank as they look from its node, and the NICs of some channels.
  std::vector<Seen> seen_from(int node, int local, int channels) const {
    const int nodes = cluster_.nodes(), locals = cluster_.locals(), rank = node * locals + local;
    const topo::Arrangement& whole = cluster_.whole();
    const MessageTable table = sim_messages<Op>(rank, cluster_.ranks(), bytes_, distance_);
    const RingPosition own = ring(rank);
    std::vector<Seen> all;
    for (int v = 0; v < Pairwise::visits(cluster_.ranks()); ++v) {
      const auto [peer, sends] = Pairwise::visit_at(own, v);
      if ((sends ? table.sends : table.recvs)[std::size_t(peer)].empty()) continue;
      const int there = peer / locals;
      Seen seen{(there - node + nodes) % nodes, peer % locals, -1, -1, sends};
      for (int c = 0; c < (there == node ? 1 : channels); ++c) {
        if (there != node) {
          seen.net = whole.net({topo::EdgeUse::pair, rank, peer, c, sends});
          seen.peer_net = whole.net({topo::EdgeUse::pair, peer, rank, c, !sends});
        }
        all.push_back(seen);
      }
    }
    return all;
  }

  static constexpr int lanes = group_lanes(Proto::carries_flags);
  static constexpr int max_lanes = ExchangeBody<Op, Algo, Proto, 16>::max_lanes;

  const sim::Cluster& cluster_;
  Index bytes_, longest_;  // of the operation; of its messages
  int distance_;
  bool networked_ = false;
  Plan plan_;
  std::vector<int> place_;        // [rank] in ring 0
  std::vector<SimStage> stages_;  // of rank 0's launches, not recorded
};

/// Simulates an exchange in which each rank does as the others do.
template <class Op, class Algo, class Proto>
Result<sim::Report> simulate_exchange(const sim::Cluster& cluster, Index bytes,
                                      const sim::Options& options) {
  CCL_CHECK(check_distance(cluster, options.distance));
  const SimExchangeLaunch<Op, Algo, Proto> launch{cluster, bytes, options};
  SimProgram program;
  for (const int period : sim_periods(cluster)) {
    if (!options.every_node && launch.repeats(period)) {
      program.period = period;
      break;
    }
  }
  const int nodes = program.period > 0 ? program.period : cluster.nodes();
  const auto length = launch.length();
  CCL_CHECK(check_wires(cluster, length.wires * nodes * cluster.locals()));
  const double slices = length.slices * nodes * cluster.locals();
  const double part = std::min(1.0, double(options.budget) / std::max(slices, 1.0));
  constexpr Index least = 8;  // rounds until the pace is visible
  const Index limit =
      part < 1 ? std::max<Index>(Index(length.rounds * part), least) : Index(length.rounds) + 2;
  program.stages = launch.record(nodes, limit);
  return report_of(cluster, program, options,
                   std::string{Op::name} + "/" + Algo::name + "/" + Proto::name, Op::name, bytes);
}

}  // namespace ccl::detail
