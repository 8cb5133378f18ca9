#include "sim/routes.hpp"

#include <ccl/detail/sim/program.hpp>

#include <fmt/format.h>

namespace ccl::detail {

Result<SimRoute> SimRoutes::between(int from, int to, int channel, topo::EdgeUse use) {
  const topo::Graph& graph = cluster_.machine();
  const topo::Paths& paths = cluster_.paths();
  const int a = cluster_.gpu(local_of(from)), b = cluster_.gpu(local_of(to));
  SimRoute way;
  const auto take = [&](const topo::Path& path, int node, std::vector<int>& links) {
    const int base = (node % span_) * int(graph.links.size());
    for (const int link : path.links) links.push_back(base + link);
    return path.reaches();
  };
  // GPUs of one node that RDMA joins better than P2P take their NICs, as in a communicator.
  const bool by_nics = node_of(from) == node_of(to) && !cluster_.on_cpus() &&
                       topo::net_beats_p2p(graph, paths, a, b) &&
                       nic({use, from, to, channel, true}) >= 0 &&
                       nic({use, to, from, channel, false}) >= 0;
  if (node_of(from) == node_of(to) && !by_nics) {
    const topo::Path path = paths.at(a, b);
    if (cluster_.on_cpus()) {
      way.path = Path::shm;
    } else if (path.type <= topo::PathType::nvb) {
      way.path = Path::nvlink;
    } else {
      way.path = topo::check_p2p(graph, paths, cluster_.rules(), a, b).allowed ? Path::pcie
                                                                               : Path::gpu_host;
    }
    if (take(path, node_of(from), way.links)) return way;
    return fail(Errc::no_transport,
                fmt::format("rank {} does not reach rank {} (no way from {} to {} in this file); "
                            "look at `ccl_topo paths`",
                            from, to, graph.label(a), graph.label(b)));
  }
  if (!by_nics && cluster_.joined(node_of(from), node_of(to))) {
    way.path = Path::nvlink;
    take(paths.wired(a, cluster_.nvswitch(local_of(from))), node_of(from), way.links);
    take(paths.wired(cluster_.nvswitch(local_of(to)), b), node_of(to), way.links_there);
    return way;
  }
  way.path = cluster_.on_cpus() ? Path::net : Path::gpu_net;
  way.direct = false;
  const int out = nic({use, from, to, channel, true}), in = nic({use, to, from, channel, false});
  if (out < 0 || in < 0 || !take(paths.at(a, out), node_of(from), way.links) ||
      !take(paths.at(in, b), node_of(to), way.links_there)) {
    return fail(Errc::no_transport,
                fmt::format("rank {} does not reach rank {} ({} has no NIC in this file); add one",
                            from, to, graph.label(out < 0 ? a : b)));
  }
  way.more_us =
      graph.nodes[std::size_t(out)].net.latency + graph.nodes[std::size_t(in)].net.latency;
  return way;
}

Rates SimRoutes::rates_of(Path path, Packing packing) const {
  // The NICs' links have the bandwidth, so only latency and payload count here: a network of 1 GB/s
  // is narrower than whatever else could bound it.
  return rates_between(path, Mover::wires, packing, {true, 1});
}

HostFacts host_facts(const sim::Cluster& cluster) {
  const topo::Arrangement& inside = cluster.inside();
  return {inside.gpu_gbs(), inside.by_nvlink(), cluster.machine().min_sm()};
}

Rates SimRoutes::lane_rates(Packing packing) const {
  return rates_inside(cluster_.on_cpus() ? Path::shm : Path::nvlink, Mover::wires, packing,
                      host_facts(cluster_));
}

int SimRoutes::nic(const topo::NetEnd& end) const {
  return cluster_.net(cluster_.whole().net(end));
}

}  // namespace ccl::detail
