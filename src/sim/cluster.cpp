#include <ccl/sim/cluster.hpp>

#include <fmt/format.h>

#include <utility>

#include "topo/search/place_ranks.hpp"

namespace ccl::sim {
namespace {

/// Copies the machine for every node and continues its ranks' numbers.
std::vector<topo::Machine> side_by_side(const topo::Machine& one, int nodes) {
  std::vector<topo::Machine> all(std::size_t(nodes), one);
  const int locals = int(one.ranks.size());
  for (int n = 0; n < nodes; ++n) {
    topo::Machine& machine = all[std::size_t(n)];
    const auto move_on = [&](std::vector<int>& ranks) {
      for (int& rank : ranks) rank += n * locals;
    };
    move_on(machine.ranks);
    for (topo::ChannelGraph* graph : {&machine.ring, &machine.tree}) {
      for (topo::ChannelOrder& order : graph->channels) move_on(order.ranks);
    }
  }
  return all;
}

/// Machine as a communicator with `locals` ranks here, and perhaps more elsewhere, creates it.
topo::Machine machine_of(const topo::Graph& graph, const topo::Paths& paths,
                         const topo::PathRules& rules, int locals, bool between, bool on_cpus) {
  const topo::Graph trimmed = topo::trim(graph, paths, 0, locals + (between ? 1 : 0));
  const topo::Paths ways = topo::compute_paths(trimmed, rules);
  topo::ChannelPlan plan = topo::search_all(trimmed, ways, locals + (between ? 1 : 0));
  topo::Machine machine;
  for (int r = 0; r < locals; ++r) machine.ranks.push_back(r);
  machine.even = on_cpus || topo::all_alike(trimmed, ways);
  machine.ring = std::move(plan.ring);
  machine.tree = std::move(plan.tree);
  for (int r = 0; between && r < locals; ++r) {
    const int gpu = trimmed.gpu_of_rank(r);
    machine.nets.push_back(topo::net_devices(
        trimmed, gpu < 0 ? std::vector<int>{} : topo::local_nets(trimmed, ways, gpu)));
  }
  return machine;
}

topo::Machine of_one_rank() {
  topo::Machine machine;
  machine.ranks = {0};
  machine.ring.channels.push_back({{0}});
  machine.tree.channels.push_back({{0}});
  machine.tree.pattern = topo::Pattern::tree;
  return machine;
}

}  // namespace

int Cluster::net(int device) const {
  for (const int net : graph_.of(topo::NodeType::net)) {
    if (graph_.nodes[std::size_t(net)].net.dev == device) return net;
  }
  return -1;
}

Result<Cluster> Cluster::of(const topo::Graph& machine, int nodes, const topo::PathRules& rules) {
  Cluster made;
  made.graph_ = machine;
  made.rules_ = rules;
  made.nodes_ = nodes;
  const std::vector<int> gpus = machine.of(topo::NodeType::gpu);
  if (gpus.empty() || nodes < 1) {
    return fail(Errc::invalid_argument,
                fmt::format("no cluster of {} nodes with {} ranks each; give a machine with GPUs, "
                            "or with ranks on its CPUs",
                            nodes, gpus.size()));
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    // Ranks of a file may belong to another job: here they are numbered in the order of the file.
    made.graph_.nodes[std::size_t(gpus[i])].gpu.rank = int(i);
    made.on_cpus_ = made.on_cpus_ || machine.nodes[std::size_t(gpus[i])].gpu.on_cpu;
  }
  made.gpus_ = gpus;
  made.paths_ = topo::compute_paths(made.graph_, rules);
  const auto search = [&](bool between) {
    return machine_of(made.graph_, made.paths_, rules, made.locals(), between, made.on_cpus_);
  };
  if (nodes > 1 && topo::local_net(made.graph_, made.paths_, gpus[0], 0) < 0) {
    return fail(Errc::no_transport,
                fmt::format("{} nodes cannot talk ({} reaches no NIC in this file); add a <net> to "
                            "it, or ask for one node",
                            nodes, made.graph_.label(gpus[0])));
  }
  const topo::Machine inside = search(false);
  CCL_TRY(made.inside_, topo::Arrangement::of({inside}, made.locals()));
  CCL_TRY(made.across_, topo::Arrangement::of(side_by_side(of_one_rank(), nodes), nodes));
  if (nodes == 1) {
    made.whole_ = made.inside_;
  } else {
    CCL_TRY(made.whole_, topo::Arrangement::of(side_by_side(search(true), nodes), made.ranks()));
  }
  return made;
}

}  // namespace ccl::sim
