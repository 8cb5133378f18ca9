#include <ccl/topo/path.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "topo/graph/path_row.hpp"

namespace ccl::topo {

detail::P2pRule::P2pRule(const Graph& graph, const PathRules& rules)
    : graph_(graph), rules_(rules) {
  const std::vector<int> cpus = graph.of(NodeType::cpu);
  const bool amd = !cpus.empty() && graph.nodes[cpus[0]].cpu.arch == CpuArch::x86 &&
                   graph.nodes[cpus[0]].cpu.vendor == CpuVendor::amd;
  if (amd && graph.of(NodeType::gpu).size() <= 2) level_ = PathType::sys;
}

PathType detail::P2pRule::level(int gpu_a, int gpu_b) const {
  if (rules_.p2p_level) return *rules_.p2p_level;
  const bool on_cpus = graph_.nodes[gpu_a].gpu.on_cpu && graph_.nodes[gpu_b].gpu.on_cpu;
  return on_cpus ? PathType::sys : level_;
}

bool detail::P2pRule::allows(const Path& wired, int gpu_a, int gpu_b) const {
  if (!wired.reaches() || (rules_.p2p_disabled && gpu_a != gpu_b)) return false;
  const bool apart = graph_.nodes[gpu_a].host != graph_.nodes[gpu_b].host;
  if (apart && wired.type > PathType::nvb) return false;
  if (wired.type == PathType::nvb && rules_.nvb_disabled) return false;
  return wired.type <= level(gpu_a, gpu_b);
}

P2pAnswer check_p2p(const Graph& graph, const Paths& paths, const PathRules& rules, int gpu_a,
                    int gpu_b) {
  P2pAnswer answer;
  const Path path = paths.wired(gpu_a, gpu_b);
  const Node& a = graph.nodes[gpu_a];
  const Node& b = graph.nodes[gpu_b];
  if (!path.reaches()) {
    answer.why = "no path";
    return answer;
  }
  if (rules.p2p_disabled && gpu_a != gpu_b) {
    answer.why = "P2P is disabled";
    return answer;
  }
  if (a.host != b.host && path.type > PathType::nvb) {
    answer.why = "they are on different hosts, which no NVLink joins";
    return answer;
  }
  if (path.type == PathType::nvb) {
    if (rules.nvb_disabled) {
      answer.why = "relaying through a GPU is disabled";
      return answer;
    }
    answer.relay = graph.links[path.links.front()].to;
  }
  const PathType level = detail::P2pRule(graph, rules).level(gpu_a, gpu_b);
  answer.allowed = path.type <= level;
  answer.why = fmt::format("path {} is {} than {}, the worst for P2P {}", name(path.type),
                           answer.allowed ? "no worse" : "worse", name(level),
                           rules.p2p_level ? "that was asked for" : "on this machine");
  answer.read = answer.allowed && path.type <= PathType::nvb && a.gpu.sm == 80 && b.gpu.sm == 80;
  return answer;
}

GdrAnswer check_gdr(const Graph& graph, const Paths& paths, const PathRules& rules, int gpu,
                    int net, bool read) {
  GdrAnswer answer;
  const Node& g = graph.nodes[gpu];
  const Node& n = graph.nodes[net];
  if (!n.net.gdr) {
    answer.why = fmt::format("{} does not offer it", n.net.name);
    return answer;
  }
  if (!g.gpu.gdr) {
    answer.why = "the GPU does not offer it (is nvidia-peermem or DMA-BUF available?)";
    return answer;
  }
  if (read) {
    const bool nvlink = std::any_of(g.out.begin(), g.out.end(),
                                    [&](int l) { return graph.links[l].type == LinkType::nvl; });
    // A GPU alone has no P2P traffic, as far as its communicator knows.
    const auto alone = [&] { return graph.of(NodeType::gpu).size() == 1; };
    if (rules.gdr_read ? !*rules.gdr_read : (g.gpu.sm < 80 && !nvlink && !alone())) {
      answer.why = rules.gdr_read ? "reading is switched off"
                                  : "reading is slow before sm_80 when PCIe carries P2P traffic";
      return answer;
    }
  }
  const PathType level = rules.gdr_level.value_or(PathType::p2c);
  const Path path = paths.wired(gpu, net);
  PathType distance = path.type;
  if (paths.at(gpu, net).type == PathType::pxn) {
    const int relay = local_gpu(graph, paths, net);
    if (relay >= 0) distance = paths.wired(relay, net).type;
  }
  answer.allowed = distance <= level;
  answer.why =
      fmt::format("distance {} {} {}", name(distance), answer.allowed ? "<=" : ">", name(level));
  return answer;
}

bool net_beats_p2p(const Graph& graph, const Paths& paths, int gpu_a, int gpu_b) {
  if (paths.at(gpu_a, gpu_b).type <= PathType::nvb) return false;
  const float direct = paths.at(gpu_a, gpu_b).bw;
  const auto faster = [&](int gpu) {
    const std::vector<int> nets = graph.of(NodeType::net);
    return std::any_of(nets.begin(), nets.end(), [&](int net) {
      const Path path = paths.at(gpu, net);  // through the CPU without GPU direct RDMA
      return path.type <= PathType::pxb && path.bw > direct;
    });
  };
  return faster(gpu_a) && faster(gpu_b);
}

}  // namespace ccl::topo
