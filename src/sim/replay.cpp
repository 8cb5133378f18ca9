#include <ccl/algo/cost.hpp>
#include <ccl/detail/sim/program.hpp>
#include <ccl/transport/sim.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "sim/actors.hpp"
#include "sim/clock.hpp"
#include "sim/routes.hpp"

namespace ccl::detail {
namespace {

class Replay {
 public:
  Replay(const sim::Cluster& cluster, const SimProgram& program, const sim::Options& options)
      : cluster_{cluster},
        program_{program},
        options_{options},
        span_{program.period > 0 ? program.period : cluster.nodes()},
        ways_{cluster, span_} {}

  Result<SimOutcome> run() {
    const auto per_node = cluster_.machine().links.size();
    for (int node = 0; node < span_; ++node) {
      for (std::size_t l = 0; l < per_node; ++l) {
        net_.add_link(std::max(double(cluster_.machine().links[l].bw), 1e-6));
      }
    }
    CCL_CHECK(build());
    start();
    play();
    for (const SimRank& actor : actors_) {
      if (actor.step == actor.step_count) continue;
      return fail(
          Errc::internal,
          fmt::format("the simulation stopped (rank {} waits in step {} of {} of channel "
                      "{}); the algorithm cannot run over {} slots, or its positions are not "
                      "what they seem",
                      actor.rank, actor.step, actor.step_count, actor.channel,
                      program_.stages[std::size_t(actor.stage)].plan.slot_count));
    }
    return outcome();
  }

 private:
  /// Both ends of a wire compute the same number: as if the sender were among the replayed ranks.
  int wire(int channel, int from, int to) {
    const int nodes = cluster_.nodes(), locals = cluster_.locals();
    const int node = from / locals, back = node - node % span_;
    from -= back * locals;
    to = ((to / locals - back + nodes) % nodes) * locals + to % locals;
    const std::uint64_t key =
        (std::uint64_t(channel) << 24 | std::uint64_t(from)) << 24 | std::uint64_t(to);
    const auto [found, added] = wire_at_.try_emplace(key, int(wires_.size()));
    if (added) wires_.emplace_back();
    return found->second;
  }

  Result<void> build() {
    for (int s = 0; s < int(program_.stages.size()); ++s) {
      const SimStage& stage = program_.stages[std::size_t(s)];
      const auto window = unsigned(stage.plan.slot_count / stage.plan.slice_steps);
      windows_.push_back(window);
      const Rates lanes = ways_.lane_rates(stage.packing);
      const double gbs =
          lanes.block_gbs > 0 ? lanes.block_gbs / stage.channels_per_block : lanes.gbs;
      lane_us_per_byte_.push_back(1e-3 / gbs);
      slice_bytes_.push_back(stage.slice_bytes);
      wire_at_.clear();  // each stage has wires of its own
      for (const SimPosition& position : stage.positions) {
        const int me = int(actors_.size());
        SimRank actor;
        const SimTrace& trace = stage.traces[std::size_t(position.trace)];
        actor.steps = trace.steps.data();
        actor.step_count = std::uint32_t(trace.steps.size());
        actor.stage = s;
        actor.rank = position.rank;
        actor.channel = position.channel;
        actor.in = table_.size();
        for (const int peer : position.in) {
          table_.push_back(wire(position.channel, peer, position.rank));
          wires_[std::size_t(table_.back())].receiver = me;
        }
        actor.out = table_.size();
        for (const int peer : position.out) {
          table_.push_back(wire(position.channel, position.rank, peer));
          SimWire& w = wires_[std::size_t(table_.back())];
          w.sender = me;
          w.payload = trace.out_bytes[table_.size() - 1 - actor.out];
          CCL_CHECK(set_route(w, stage, position, peer));
        }
        actors_.push_back(actor);
      }
    }
    wire_at_.clear();
    std::size_t slots = 0;
    for (SimWire& w : wires_) {
      if (w.sender < 0 || w.receiver < 0) {
        return fail(Errc::internal,
                    "a wire has one end only (an algorithm's ranks do not name the same peers)");
      }
      w.slots = slots;
      slots += windows_[std::size_t(actors_[std::size_t(w.sender)].stage)];
    }
    come_us_.resize(slots);
    there_bytes_.resize(slots);
    credit_us_.resize(slots);
    return {};
  }

  Result<void> set_route(SimWire& w, const SimStage& stage, const SimPosition& position, int peer) {
    CCL_TRY(const SimRoute found,
            ways_.between(position.rank, peer, position.channel, position.use));
    const Rates cost = ways_.rates_of(found.path, stage.packing);
    const Rates plain = ways_.rates_of(found.path, Packing::simple);
    const Rates word = ways_.rates_of(found.path, Packing::ll);
    const bool net = !found.direct;
    w.hop_us = float((net && options_.net_us ? *options_.net_us : cost.hop_us) + found.more_us);
    // A credit is a single word: the time of LL's hop.
    w.credit_us = std::min(w.hop_us, float(word.hop_us + found.more_us));
    w.cost = float(plain.gbs / cost.gbs);
    w.direct = found.direct;
    w.route = net_.add_route(found.links);
    if (!found.links_there.empty()) w.route_there = net_.add_route(found.links_there);
    return {};
  }

  void start() {
    const std::size_t ranks = std::size_t(span_) * cluster_.locals(),
                      stages = program_.stages.size();
    left_.assign(stages * ranks, 0);
    of_rank_.resize(stages * ranks);
    done_us_.assign(stages, 0);
    rank_us_.assign(stages * ranks, 0);
    for (std::size_t a = 0; a < actors_.size(); ++a) {
      const SimRank& actor = actors_[a];
      const std::size_t at = std::size_t(actor.stage) * ranks + std::size_t(actor.rank);
      ++left_[at];
      of_rank_[at].push_back(int(a));
    }
    for (std::size_t r = 0; r < ranks; ++r) begin(0, r, 0);
  }
  /// Starts a stage on a rank.
  void begin(std::size_t stage, std::size_t rank, double us) {
    const std::size_t ranks = std::size_t(span_) * cluster_.locals();
    if (stage == program_.stages.size()) return;
    const SimStage& what = program_.stages[stage];
    us += ways_.lane_rates(what.packing).base_us;
    done_us_[stage] = std::max(done_us_[stage], us);
    if (left_[stage * ranks + rank] == 0) return begin(stage + 1, rank, us);
    for (const int a : of_rank_[stage * ranks + rank]) {
      actors_[std::size_t(a)].free_us = us;
      look(a);
    }
  }

  /// Adds the rank's next slice to the clock, or registers the rank with the wire that blocks it.
  void look(int a) {
    SimRank& actor = actors_[std::size_t(a)];
    if (actor.step == actor.step_count) return finish(actor);
    const SimStep& step = actor.steps[actor.step];
    const unsigned window = windows_[std::size_t(actor.stage)];
    double us = actor.free_us;
    for (const int i : step.in) {
      if (i < 0) continue;
      SimWire& w = wires_[std::size_t(table_[actor.in + std::size_t(i)])];
      if (w.taken == w.come) {
        w.receiver_waits = true;
        return;
      }
      us = std::max(us, come_us_[w.slots + w.taken % window]);
    }
    for (const int o : step.out) {
      if (o < 0) continue;
      SimWire& w = wires_[std::size_t(table_[actor.out + std::size_t(o)])];
      if (w.sent < window) continue;
      if (w.sent - w.taken >= window) {
        w.sender_waits = true;
        return;
      }
      us = std::max(us, credit_us_[w.slots + w.sent % window]);
    }
    clock_.add(us, a);
  }

  void finish(SimRank& actor) {
    const auto stage = std::size_t(actor.stage);
    const std::size_t ranks = std::size_t(span_) * cluster_.locals();
    const auto rank = std::size_t(actor.rank);
    done_us_[stage] = std::max(done_us_[stage], actor.free_us);
    double& last = rank_us_[stage * ranks + rank];
    last = std::max(last, actor.free_us);
    if (--left_[stage * ranks + rank] == 0) begin(stage + 1, rank, last);
  }

  void play() {
    double us = 0;
    int a = 0;
    while (clock_.take(us, a)) {
      if (a >= 0) {
        move(actors_[std::size_t(a)], a, us);
      } else {
        enter(wires_[std::size_t(~a)], us);
      }
    }
  }

  /// Sends a slice. Pieces take their turns at the receiver's NIC in the order in which they reach
  /// it, so a slice to another node goes on in an event of its own. Returns when it has left.
  double send(int wire, double bytes, double start, double lanes) {
    SimWire& w = wires_[std::size_t(wire)];
    const std::size_t slot = w.slots + w.sent++ % windows_of(w);
    const auto [head, arrives] = net_.pass(w.route, bytes * w.cost, start);
    const double over = std::max(lanes, arrives);
    come_us_[slot] = over + w.hop_us;
    if (w.route_there < 0) {
      w.come = w.sent;
    } else {
      there_bytes_[slot] = bytes * w.cost;
      clock_.add(head, ~wire);
    }
    return over;
  }
  /// Takes the oldest slice on its way through the receiver's NIC.
  void enter(SimWire& w, double us) {
    const std::size_t slot = w.slots + w.come++ % windows_of(w);
    const double over = net_.carry(w.route_there, there_bytes_[slot], us);
    come_us_[slot] = std::max(come_us_[slot], over + w.hop_us);
    wake_receiver(w);
  }
  void wake_receiver(SimWire& w) {
    if (!w.receiver_waits || w.taken == w.come) return;
    w.receiver_waits = false;
    look(w.receiver);
  }
  /// Slices that a wire holds.
  unsigned windows_of(const SimWire& w) const {
    return windows_[std::size_t(actors_[std::size_t(w.sender)].stage)];
  }

  /// Moves a slice: in, through the lanes, and out.
  void move(SimRank& actor, int a, double us) {
    const SimStep step = actor.steps[actor.step];
    const unsigned window = windows_[std::size_t(actor.stage)];
    const Index bytes =
        std::min(slice_bytes_[std::size_t(actor.stage)], step.bytes - actor.done_bytes);
    const double lanes = us + double(bytes) * lane_us_per_byte_[std::size_t(actor.stage)];
    double free = lanes;
    for (const int o : step.out) {
      if (o < 0) continue;
      const int wire = table_[actor.out + std::size_t(o)];
      const bool direct = wires_[std::size_t(wire)].direct;
      const double over = send(wire, double(bytes), direct ? us : lanes, lanes);
      if (direct) free = std::max(free, over);
    }
    for (const int i : step.in) {
      if (i < 0) continue;
      SimWire& w = wires_[std::size_t(table_[actor.in + std::size_t(i)])];
      credit_us_[w.slots + w.taken % window] = free + w.credit_us;
      ++w.taken;
    }
    actor.free_us = free;
    ++slices_;
    actor.done_bytes += bytes;
    if (actor.done_bytes == step.bytes) {
      actor.done_bytes = 0;
      ++actor.step;
      if (actor.step == actor.step_count / 4) actor.quarter_us = free;
      if (actor.step == actor.step_count / 4 * 3) actor.last_quarter_us = free;
    }
    for (const int o : step.out) {
      if (o < 0) continue;
      wake_receiver(wires_[std::size_t(table_[actor.out + std::size_t(o)])]);
    }
    for (const int i : step.in) {
      if (i < 0) continue;
      SimWire& w = wires_[std::size_t(table_[actor.in + std::size_t(i)])];
      if (!w.sender_waits) continue;
      w.sender_waits = false;
      look(w.sender);
    }
    look(a);
  }

  SimOutcome outcome() const {
    SimOutcome done;
    done.slices = slices_;
    double before = 0;
    for (std::size_t s = 0; s < program_.stages.size(); ++s) {
      double rounds = 0, all = 0;
      for (const SimTrace& trace : program_.stages[s].traces) {
        if (trace.all_rounds <= all) continue;
        all = trace.all_rounds;
        rounds = trace.rounds;
      }
      double us = std::max(done_us_[s] - before, 0.0);
      before = std::max(before, done_us_[s]);
      if (all > rounds && rounds > 0) {
        // Filling and draining do not grow with the message.
        double from = 0, until = 0;
        for (const SimRank& actor : actors_) {
          if (std::size_t(actor.stage) != s) continue;
          from = std::max(from, actor.quarter_us);
          until = std::max(until, actor.last_quarter_us);
        }
        us += (all - rounds) * (until - from) / (rounds / 2);
      }
      done.stage_us.push_back(us);
      done.us += us;
    }
    const auto per_node = cluster_.machine().links.size();
    std::vector<double> bytes(std::size_t(net_.link_count())), busy(bytes.size());
    const double copies = double(cluster_.nodes()) / span_;
    for (const SimWire& w : wires_) {
      const auto s = std::size_t(actors_[std::size_t(w.sender)].stage);
      done.payload += w.payload * copies;
      for (const int route : {w.route, w.route_there}) {
        if (route < 0) continue;
        for (const int link : net_.route(route)) {
          bytes[std::size_t(link)] += w.payload * program_.stages[s].overhead;
          busy[std::size_t(link)] += w.payload * w.cost * net_.us_per_byte(link);
        }
      }
    }
    for (std::size_t l = 0; l < per_node; ++l) {
      std::size_t most = l;
      for (std::size_t at = l; at < bytes.size(); at += per_node) {
        if (busy[at] > busy[most]) most = at;
      }
      if (bytes[most] <= 0) continue;
      const topo::Graph& graph = cluster_.machine();
      const topo::Link& link = graph.links[l];
      done.links.push_back({fmt::format("{} -> {}", graph.label(link.from), graph.label(link.to)),
                            int(most / per_node), double(link.bw), bytes[most],
                            done.us > 0 ? busy[most] / done.us : 0});
    }
    std::stable_sort(done.links.begin(), done.links.end(),
                     [](const auto& a, const auto& b) { return a.busy > b.busy; });
    done.nics = nics_of(bytes);
    return done;
  }

  /// Returns what NICs carried, from the bytes of all links.
  std::vector<sim::NicLoad> nics_of(const std::vector<double>& bytes) const {
    const topo::Graph& graph = cluster_.machine();
    std::vector<sim::NicLoad> nics;
    for (int node = 0; node < span_; ++node) {
      for (const int net : graph.of(topo::NodeType::net)) {
        sim::NicLoad load{node, graph.nodes[std::size_t(net)].net.dev};
        for (std::size_t l = 0; l < graph.links.size(); ++l) {
          const double moved = bytes[std::size_t(node) * graph.links.size() + l];
          if (graph.links[l].to == net) load.sent += moved;
          if (graph.links[l].from == net) load.received += moved;
        }
        if (load.sent + load.received > 0) nics.push_back(load);
      }
    }
    return nics;
  }

  const sim::Cluster& cluster_;
  const SimProgram& program_;
  const sim::Options& options_;
  const int span_;  // nodes that are replayed
  SimRoutes ways_;
  SimTransport net_;
  SimClock clock_;
  std::vector<SimWire> wires_;
  std::unordered_map<std::uint64_t, int> wire_at_;
  std::vector<SimRank> actors_;
  std::vector<int> table_;                   // wires of all actors
  std::vector<double> come_us_, credit_us_;  // of each slot: its slice arrives; it is free
  std::vector<double> there_bytes_;          // of each slot: what the receiver's NIC passes on
  std::vector<unsigned> windows_;            // [stage]: slices of a wire
  std::vector<Index> slice_bytes_;           // [stage]
  std::vector<double> lane_us_per_byte_;     // [stage]
  std::vector<int> left_;                    // [stage][rank]: channels in flight
  std::vector<double> rank_us_;              // [stage][rank]
  std::vector<std::vector<int>> of_rank_;    // [stage][rank]
  std::vector<double> done_us_;              // [stage]
  Index slices_ = 0;
};

}  // namespace

Result<SimOutcome> replay(const sim::Cluster& cluster, const SimProgram& program,
                          const sim::Options& options) {
  return Replay{cluster, program, options}.run();
}

}  // namespace ccl::detail
