#include <ccl/topo/path.hpp>

#include <algorithm>
#include <charconv>

#include "base/text.hpp"
#include "topo/graph/path_row.hpp"
#include "topo/search/searcher.hpp"

namespace ccl::topo {

unsigned detail::first_net(const Graph& graph, int gpu, unsigned count) {
  const unsigned place = static_cast<unsigned>(std::max(0, graph.nodes[gpu].gpu.dev));
  if ((count & (count - 1)) != 0) return place;
  // Mirrored bits: neighboring numbers are far apart in NICs.
  unsigned mirrored = 0;
  for (unsigned bit = 1, top = count >> 1; top > 0; bit <<= 1, top >>= 1) {
    if ((place & bit) != 0) mirrored |= top;
  }
  return mirrored;
}

std::vector<int> nearest(const Graph& graph, const Paths& paths, int node, NodeType type) {
  std::vector<int> found;
  Path best;
  for (int other = 0; other < static_cast<int>(graph.nodes.size()); ++other) {
    if (graph.nodes[other].type != type) continue;
    const Path path = paths.wired(node, other);
    if (!path.reaches() || path.bw <= 0) continue;
    if (path.bw > best.bw || (path.bw == best.bw && path.type < best.type)) {
      best = path;
      found.clear();
    }
    if (path.bw == best.bw && path.type == best.type) found.push_back(other);
  }
  return found;
}

bool parse(std::string_view text, NetDevsPolicy& policy) {
  const auto same = [](std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](char x, char y) { return ccl::detail::upper(x) == y; });
  };
  constexpr std::string_view most = "MAX:";
  if (same(text, "AUTO") || same(text, "ALL")) {
    policy.kind = same(text, "ALL") ? NetDevsPolicy::Kind::all : NetDevsPolicy::Kind::automatic;
    return true;
  }
  if (!same(text.substr(0, most.size()), most)) return false;
  const std::string_view number = text.substr(most.size());
  policy.kind = NetDevsPolicy::Kind::at_most;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), policy.most);
  return error == std::errc() && end == number.data() + number.size() && policy.most > 0;
}

std::vector<int> local_nets(const Graph& graph, const Paths& paths, int gpu,
                            const NetDevsPolicy& policy) {
  const std::vector<int> nets = nearest(graph, paths, gpu, NodeType::net);
  if (nets.empty()) return {};
  const unsigned count = static_cast<unsigned>(nets.size());
  unsigned taken = count;
  if (policy.kind == NetDevsPolicy::Kind::automatic) {
    const std::size_t gpus =
        std::max<std::size_t>(1, nearest(graph, paths, nets[0], NodeType::gpu).size());
    taken = (count + static_cast<unsigned>(gpus) - 1) / static_cast<unsigned>(gpus);
  } else if (policy.kind == NetDevsPolicy::Kind::at_most) {
    taken = std::min(count, static_cast<unsigned>(std::max(1, policy.most)));
  }
  std::vector<int> own;
  const unsigned first = detail::first_net(graph, gpu, count);
  for (unsigned n = 0; n < taken; ++n) own.push_back(nets[(first + n) % count]);
  return own;
}

int local_net(const Graph& graph, const Paths& paths, int gpu, int channel,
              const NetDevsPolicy& policy) {
  const std::vector<int> own = local_nets(graph, paths, gpu, policy);
  return own.empty() ? -1 : own[static_cast<std::size_t>(channel) % own.size()];
}

std::vector<int> rail_nets(const Graph& graph, const Paths& paths, int gpu) {
  std::vector<int> found;
  bool relayed = false;
  for (const int net : graph.of(NodeType::net)) {
    const PathType type = paths.at(gpu, net).type;
    if (type <= PathType::pxn) found.push_back(net);
    relayed = relayed || type == PathType::pxn;
  }
  return relayed ? found : std::vector<int>{};
}

int local_gpu(const Graph& graph, const Paths& paths, int net) {
  int best = -1;
  std::ptrdiff_t first = 0;  // channel in which `best` takes the NIC
  for (const int gpu : nearest(graph, paths, net, NodeType::gpu)) {
    const std::vector<int> own = local_nets(graph, paths, gpu);
    const std::ptrdiff_t channel = std::find(own.begin(), own.end(), net) - own.begin();
    if (channel == std::ssize(own) || (best >= 0 && channel >= first)) continue;
    best = gpu;
    first = channel;
  }
  return best;
}

std::vector<int> detail::local_gpus(const Graph& graph, const Paths& paths) {
  std::vector<int> found(graph.nodes.size(), -1);
  std::vector<std::ptrdiff_t> first(graph.nodes.size(), 0);
  for (const int gpu : graph.of(NodeType::gpu)) {
    const std::vector<int> own = local_nets(graph, paths, gpu);
    for (std::ptrdiff_t channel = 0; channel < std::ssize(own); ++channel) {
      const int net = own[std::size_t(channel)];
      if (found[net] >= 0 && channel >= first[net]) continue;
      const std::vector<int> near = nearest(graph, paths, net, NodeType::gpu);
      if (std::find(near.begin(), near.end(), gpu) == near.end()) continue;
      found[net] = gpu;
      first[net] = channel;
    }
  }
  return found;
}

int local_cpu(const Graph& graph, const Paths& paths, int gpu) {
  int best = -1;
  for (int cpu = 0; cpu < static_cast<int>(graph.nodes.size()); ++cpu) {
    if (graph.nodes[cpu].type != NodeType::cpu) continue;
    const Path path = paths.wired(gpu, cpu);
    if (!path.reaches()) continue;
    if (best < 0 || path.hops() < paths.wired(gpu, best).hops()) best = cpu;
  }
  return best;
}

std::vector<int> cores_of(std::string_view mask) {
  std::vector<int> cores;
  int core = 0;
  for (std::size_t at = mask.size(); at-- > 0;) {
    if (mask[at] == ',') continue;  // between words of 32 cores
    int digit = 0;
    const auto [end, error] = std::from_chars(mask.data() + at, mask.data() + at + 1, digit, 16);
    if (error != std::errc()) return {};
    for (int bit = 0; bit < 4; ++bit) {
      if ((digit >> bit & 1) != 0) cores.push_back(core + bit);
    }
    core += 4;
  }
  return cores;
}

std::string cpu_affinity(const Graph& graph, const Paths& paths, int gpu) {
  const int cpu = local_cpu(graph, paths, gpu);
  return cpu < 0 ? std::string() : graph.nodes[cpu].cpu.affinity;
}

}  // namespace ccl::topo
