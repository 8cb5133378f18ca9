#include <ccl/sim/cluster.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "topo/search/gpu_links.hpp"
#include "topo/search/place_ranks.hpp"

namespace ccl::sim {
namespace {

/// Copies the machine for every node and continues its ranks' numbers. Names the domains.
std::vector<topo::Machine> side_by_side(const topo::Machine& one, int nodes, int domain_nodes) {
  std::vector<topo::Machine> all(std::size_t(nodes), one);
  const int locals = int(one.ranks.size());
  for (int n = 0; n < nodes; ++n) {
    topo::Machine& machine = all[std::size_t(n)];
    if (domain_nodes > 1) machine.fabric = std::uint64_t(1 + n / domain_nodes);
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

/// Machine as a communicator with `locals` ranks here, and perhaps more elsewhere, creates it, and
/// what the search found.
struct Found {
  topo::Machine machine;
  topo::ChannelPlan plan;
};
Result<Found> machine_of(const topo::Graph& graph, const topo::Paths& paths,
                         const topo::PathRules& rules, const topo::NetRules& nets,
                         const topo::XmlFile* graphs, int locals, bool between, bool on_cpus) {
  const topo::Graph trimmed = topo::trim(graph, paths, 0, locals + (between ? 1 : 0));
  const topo::Paths ways = topo::compute_paths(trimmed, rules);
  Found found;
  found.plan = topo::search_all(trimmed, ways, locals + (between ? 1 : 0), nets.cross_nic);
  if (graphs != nullptr) CCL_CHECK(topo::take_graphs(found.plan, *graphs, trimmed));
  topo::Machine& machine = found.machine;
  for (int r = 0; r < locals; ++r) machine.ranks.push_back(r);
  machine.even = on_cpus || topo::all_alike(trimmed, ways);
  if (!on_cpus) {
    const topo::GpuLinks links = topo::gpu_links(trimmed, ways);
    machine.gpu_bw = links.bw;
    machine.nvlink = links.nvlink;
  }
  machine.ring = found.plan.ring;
  machine.tree = found.plan.tree;
  machine.same_rail = nets.cross_nic == 0;
  for (int r = 0; between && r < locals; ++r) {
    topo::MessageNets found = topo::message_nets(trimmed, ways, trimmed.gpu_of_rank(r), nets);
    machine.nets.push_back(std::move(found.near));
    machine.rails.push_back(std::move(found.rails));
  }
  return found;
}

/// GPUs by their ranks, which are 0 to n - 1, or in the order of the file: its ranks may belong to
/// a larger job. If some have a rank, those without take no part.
std::vector<int> by_rank(const topo::Graph& machine) {
  std::vector<int> gpus = machine.of(topo::NodeType::gpu);
  const auto idle = [&](int gpu) { return machine.nodes[std::size_t(gpu)].gpu.rank < 0; };
  if (!std::all_of(gpus.begin(), gpus.end(), idle)) std::erase_if(gpus, idle);
  std::vector<int> sorted(gpus.size(), -1);
  for (const int gpu : gpus) {
    const int rank = machine.nodes[std::size_t(gpu)].gpu.rank;
    if (rank < 0 || rank >= int(gpus.size()) || sorted[std::size_t(rank)] >= 0) return gpus;
    sorted[std::size_t(rank)] = gpu;
  }
  return sorted;
}

/// True if all of these GPUs have the same attribute `fabric`.
bool in_one_fabric(const topo::Graph& machine, const std::vector<int>& gpus) {
  const auto fabric_of = [&](int gpu) {
    for (const auto& [key, value] : machine.nodes[std::size_t(gpu)].others) {
      if (key == "fabric") return value;
    }
    return std::string{};
  };
  const std::string first = fabric_of(gpus[0]);
  const auto same = [&](int gpu) { return fabric_of(gpu) == first; };
  return !first.empty() && std::all_of(gpus.begin(), gpus.end(), same);
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

int Cluster::nvswitch(int local) const {
  for (const int nvs : graph_.of(topo::NodeType::nvs)) {
    if (paths_.wired(gpu(local), nvs).type == topo::PathType::nvl) return nvs;
  }
  return -1;
}

Result<void> Cluster::check_inside() const {
  const auto apart = std::find_if(gpus_.begin(), gpus_.end(), [&](int gpu) {
    return paths_.at(gpus_[0], gpu).type >= topo::PathType::net;
  });
  if (apart == gpus_.end()) return {};
  const bool p2p = !rules_.p2p_disabled, shm = !rules_.shm_disabled;
  return fail(Errc::not_supported,
              fmt::format("{} and {} reach each other over the network alone ({}), so that a "
                          "communicator takes their node for several machines, which the simulator "
                          "does not; allow {}",
                          graph_.label(gpus_[0]), graph_.label(*apart),
                          shm   ? "they are on different hosts"
                          : p2p ? "shared memory is disabled, and their path is none for P2P"
                                : "P2P and shared memory are disabled",
                          shm   ? "one host in a file"
                          : p2p ? "shared memory"
                                : "one of them"));
}

Result<void> Cluster::join_nodes(int domain_nodes) {
  if (domain_nodes < 0 || domain_nodes > nodes_) {
    return fail(Errc::invalid_argument,
                fmt::format("no NVLink domain has {} nodes of {}; give 1 to {}, or none for what "
                            "the file says",
                            domain_nodes, nodes_, nodes_));
  }
  const bool asked = domain_nodes != by_file;
  if (!asked) domain_nodes = in_one_fabric(graph_, gpus_) ? nodes_ : 1;
  if (domain_nodes == 1 || (rules_.p2p_disabled && !asked)) return {};
  const auto refuse = [](const std::string& why) {
    return fail(Errc::no_transport, fmt::format("NVLink joins no two such nodes ({}); ask for "
                                                "domains of one node",
                                                why));
  };
  if (rules_.p2p_disabled) return refuse("P2P is disabled");
  for (int local = 0; local < locals(); ++local) {
    if (nvswitch(local) >= 0) continue;
    return refuse(graph_.label(gpu(local)) + " reaches no NVSwitch in this file");
  }
  domain_nodes_ = domain_nodes;
  return {};
}

Result<Cluster> Cluster::of(const topo::Graph& machine, int nodes, const topo::PathRules& rules,
                            const topo::NetRules& nets, int domain_nodes,
                            const topo::XmlFile* graphs) {
  Cluster made;
  made.graph_ = machine;
  made.rules_ = rules;
  made.nodes_ = nodes;
  const std::vector<int> gpus = by_rank(machine);
  if (gpus.empty() || nodes < 1) {
    return fail(Errc::invalid_argument,
                fmt::format("no cluster of {} nodes with {} ranks each; give a machine with GPUs, "
                            "or with ranks on its CPUs",
                            nodes, gpus.size()));
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    made.graph_.nodes[std::size_t(gpus[i])].gpu.rank = int(i);
    made.on_cpus_ = made.on_cpus_ || machine.nodes[std::size_t(gpus[i])].gpu.on_cpu;
  }
  made.gpus_ = gpus;
  made.paths_ = topo::compute_paths(made.graph_, rules);
  CCL_CHECK(made.check_inside());
  CCL_CHECK(made.join_nodes(domain_nodes));
  const auto search = [&](bool between) {
    return machine_of(made.graph_, made.paths_, rules, nets, graphs, made.locals(), between,
                      made.on_cpus_);
  };
  if (made.networked() && topo::local_net(made.graph_, made.paths_, gpus[0], 0) < 0) {
    return fail(Errc::no_transport,
                fmt::format("{} nodes cannot talk ({} reaches no NIC in this file); add a <net> to "
                            "it, or ask for one node",
                            nodes, made.graph_.label(gpus[0])));
  }
  CCL_TRY(Found inside, search(false));
  CCL_TRY(made.inside_, topo::Arrangement::of({std::move(inside.machine)}, made.locals()));
  made.plan_ = std::move(inside.plan);
  CCL_TRY(made.across_,
          topo::Arrangement::of(side_by_side(of_one_rank(), nodes, made.domain_nodes_), nodes));
  if (nodes == 1) {
    made.whole_ = made.inside_;
  } else {
    CCL_TRY(Found each, search(true));
    CCL_TRY(made.whole_, topo::Arrangement::of(
                             side_by_side(each.machine, nodes, made.domain_nodes_), made.ranks()));
    made.plan_ = std::move(each.plan);
  }
  return made;
}

}  // namespace ccl::sim
