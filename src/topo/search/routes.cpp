#include <algorithm>
#include <cmath>
#include <map>

#include "topo/search/searcher.hpp"

namespace ccl::topo::detail {

Searcher::Searcher(const Graph& graph, const Paths& paths, const SearchOptions& options)
    : graph_(graph),
      paths_(paths),
      options_(options),
      nets_(options.between ? graph.of(NodeType::net) : std::vector<int>()),
      on_wire_(nets_.size()),
      left_(graph.links.size()),
      reverse_(graph.links.size(), -1) {
  for (const int gpu : graph.of(NodeType::gpu)) {
    if (graph.nodes[gpu].gpu.rank < 0) continue;
    gpu_of_rank_.emplace(graph.nodes[gpu].gpu.rank, gpu_count());
    gpus_.push_back(gpu);
  }
  for (std::size_t l = 0; l < graph.links.size(); ++l) left_[l] = graph.links[l].bw;
  for (std::size_t l = 0; l < graph.links.size(); ++l) {
    const Link& link = graph.links[l];
    for (const int back : graph.nodes[link.to].out) {
      if (graph.links[back].to == link.from && graph.links[back].type == link.type) {
        reverse_[l] = back;
      }
    }
  }
  const std::vector<int> switches = graph.of(NodeType::nvs);
  nvs_ = switches.empty() ? -1 : switches.front();
  std::map<std::pair<std::uint64_t, int>, int> wires;
  for (std::size_t n = 0; n < nets_.size(); ++n) {
    const Node::Net& net = graph.nodes[nets_[n]].net;
    net_left_.push_back(net.bw);
    const int fresh = static_cast<int>(n);
    wire_.push_back(
        net.guid == 0 ? fresh : wires.emplace(std::pair(net.guid, net.port), fresh).first->second);
    on_wire_[wire_.back()].push_back(fresh);
    net_of_dev_[net.dev] = fresh;
  }
  between_ = !nets_.empty();
  scores_.resize(gpus_.size() * (nets_.size() + 1));
  prepare_routes();
  prepare_nets();
}

bool Searcher::through_intel_host(int from, int to) const {
  const Path path = paths_.at(from, to);
  return path.type == PathType::phb && std::ranges::any_of(path.links, [&](int l) {
           const Node& node = graph_.nodes[graph_.links[l].to];
           return node.type == NodeType::cpu && node.cpu.arch == CpuArch::x86 &&
                  node.cpu.vendor == CpuVendor::intel;
         });
}

void Searcher::prepare_routes() {
  for (const int a : gpus_) {
    for (const int b : gpus_) gpu_gpu_intel_.push_back(through_intel_host(a, b) ? 1 : 0);
    for (const int n : nets_) gpu_net_intel_.push_back(through_intel_host(a, n) ? 1 : 0);
    nvs_intel_.push_back(nvs_ >= 0 && through_intel_host(a, nvs_) ? 1 : 0);
    float pci = 0;
    for (const int l : graph_.nodes[a].out) {
      if (graph_.links[l].type == LinkType::pci) pci = std::max(pci, graph_.links[l].bw);
    }
    pci_bw_.push_back(pci);
  }
}

Route Searcher::route(SearchPlace from, SearchPlace to) const {
  Route found{path(from, to), false};
  if (from.end != End::gpu) return found;
  if (to.end == End::gpu) {
    found.through_intel_host = gpu_gpu_intel_[from.index * gpus_.size() + to.index] != 0;
  } else if (to.end == End::net) {
    found.through_intel_host = gpu_net_intel_[from.index * nets_.size() + to.index] != 0;
  } else {
    found.through_intel_host = nvs_intel_[from.index] != 0;
  }
  return found;
}

void Searcher::prepare_nets() {
  const auto best = [&](int count, const auto& path_of) {
    std::vector<int> found;
    Path first;
    for (int i = 0; i < count; ++i) {
      const Path path = path_of(i);
      if (!path.reaches() || path.bw <= 0) continue;
      if (path.bw > first.bw || (path.bw == first.bw && path.type < first.type)) {
        first = path;
        found.clear();
      }
      if (path.bw == first.bw && path.type == first.type) found.push_back(i);
    }
    return found;
  };
  const int net_count = static_cast<int>(nets_.size());
  for (int n = 0; n < net_count; ++n) {
    near_gpus_.push_back(best(gpu_count(), [&](int g) { return from_net(n, g); }));
  }
  std::vector<std::vector<int>> own(gpus_.size());
  for (int g = 0; g < gpu_count(); ++g) {
    const std::vector<int> locals = best(net_count, [&](int n) { return to_net(g, n); });
    if (locals.empty()) continue;
    const unsigned count = static_cast<unsigned>(locals.size());
    const unsigned sharers = std::max(1U, static_cast<unsigned>(near_gpus_[locals.front()].size()));
    const unsigned place = first_net(graph_, gpus_[g], count);
    const unsigned each = (count + sharers - 1) / sharers;
    for (unsigned c = 0; c < each; ++c) own[g].push_back(locals[(place + c) % count]);
  }
  own_gpu_.assign(nets_.size(), -1);
  for (int n = 0; n < net_count; ++n) {
    for (const int g : near_gpus_[n]) {
      if (own_gpu_[n] < 0 && std::find(own[g].begin(), own[g].end(), n) != own[g].end()) {
        own_gpu_[n] = g;
      }
    }
  }
  // The list for a type begins with that for the next better one.
  net_lists_.assign(static_cast<std::size_t>(PathType::dis) + 1,
                    std::vector<std::vector<int>>(gpus_.size() + 1));
  for (int wanted = -1; wanted < gpu_count(); ++wanted) {
    const int first = std::max(wanted, 0), end = wanted < 0 ? gpu_count() : wanted + 1;
    std::vector<int> list;
    std::vector<char> listed(nets_.size(), 0);
    const auto add = [&](int n) {
      if (listed[n] == 0) list.push_back(n);
      listed[n] = 1;
    };
    for (int g = first; g < end; ++g) std::ranges::for_each(own[g], add);
    for (int type = 0; type <= static_cast<int>(PathType::dis); ++type) {
      for (int g = first; g < end && type < static_cast<int>(PathType::dis); ++g) {
        for (int n = 0; n < net_count; ++n) {
          if (static_cast<int>(to_net(g, n).type) == type) add(n);
        }
      }
      net_lists_[type][wanted + 1] = list;
    }
  }
}

bool Searcher::take(const Route& route, const Node& start, std::size_t links, float bw,
                    std::size_t& done) {
  const float pci_bw = route.through_intel_host ? bw * 6 / 5 : bw;
  const auto subtract = [](float& from, float amount) {
    from = std::round((from - amount) * 1000) / 1000;
  };
  for (done = 0; done < links; ++done) {
    const int l = route.path.links[done];
    const Link& link = graph_.links[l];
    const float forth = link.type == LinkType::pci ? pci_bw : bw;
    float back = 0;
    const Node& to = graph_.nodes[link.to];
    // Before sm_80 a NIC's writes cost an eighth of the bandwidth on the way back.
    if (to.type == NodeType::gpu && to.gpu.sm < 80 && !to.gpu.on_cpu &&
        start.type != NodeType::gpu) {
      back += forth / 8;
    }
    // POWER's NVLink to the CPU is half duplex.
    if (to.type == NodeType::cpu && to.cpu.arch == CpuArch::power && link.type == LinkType::nvl) {
      back += forth;
    }
    const int r = back != 0 ? reverse_[l] : -1;
    if (left_[l] < forth || (r >= 0 && left_[r] < back)) return false;
    subtract(left_[l], forth);
    if (r >= 0) subtract(left_[r], back);
  }
  return true;
}

bool Searcher::follow(SearchPlace from, SearchPlace to, float share) {
  const bool inside = from.end != End::net && to.end != End::net;
  const Route found = route(from, to);
  const Path& path = found.path;
  if (!path.reaches() || path.type >= PathType::net) return false;
  const PathType worst = inside ? now_.type_intra : now_.type_inter;
  if (path.type > worst) return false;
  const bool chain = now_.pattern == Pattern::balanced_tree || now_.pattern == Pattern::tree ||
                     now_.pattern == Pattern::split_tree;
  // Trees carry data in both directions.
  if (chain && from.end != End::nvs && to.end != End::nvs && route(to, from).path.type > worst) {
    return false;
  }
  const float bw = (inside ? now_.bw_intra : now_.bw_inter) * share;
  const Node& start = graph_.nodes[from.end == End::gpu   ? gpus_[from.index]
                                   : from.end == End::net ? nets_[from.index]
                                                          : nvs_];
  std::size_t done = 0;
  if (take(found, start, path.links.size(), bw, done)) {
    now_.hops += share * static_cast<float>(path.hops());
    return true;
  }
  std::size_t undone = 0;
  take(found, start, done, -bw, undone);
  return false;
}

void Searcher::unfollow(SearchPlace from, SearchPlace to, float share) {
  const bool inside = from.end != End::net && to.end != End::net;
  const Route found = route(from, to);
  const float bw = (inside ? now_.bw_intra : now_.bw_inter) * share;
  const Node& start = graph_.nodes[from.end == End::gpu   ? gpus_[from.index]
                                   : from.end == End::net ? nets_[from.index]
                                                          : nvs_];
  std::size_t undone = 0;
  take(found, start, found.path.links.size(), -bw, undone);
  now_.hops -= share * static_cast<float>(found.path.hops());
}

}  // namespace ccl::topo::detail
