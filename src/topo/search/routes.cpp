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
      left_(graph.links.size()),
      reverse_(graph.links.size(), -1) {
  for (const int gpu : graph.of(NodeType::gpu)) {
    if (graph.nodes[gpu].gpu.rank >= 0) gpus_.push_back(gpu);
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
  }
  between_ = !nets_.empty();
  scores_.resize(gpus_.size() * (nets_.size() + 1));
  prepare_routes();
  prepare_nets();
}

Route Searcher::route(int from, int to) const {
  Route found;
  found.path = &paths_.at(from, to);
  if (found.path->type == PathType::phb && graph_.nodes[from].type == NodeType::gpu) {
    for (const int l : found.path->links) {
      const Node& node = graph_.nodes[graph_.links[l].to];
      if (node.type == NodeType::cpu && node.cpu.arch == CpuArch::x86 &&
          node.cpu.vendor == CpuVendor::intel) {
        found.through_intel_host = true;
      }
    }
  }
  return found;
}

void Searcher::prepare_routes() {
  for (const int a : gpus_) {
    for (const int b : gpus_) gpu_gpu_.push_back(route(a, b));
  }
  for (const int g : gpus_) {
    for (const int n : nets_) gpu_net_.push_back(route(g, n));
  }
  for (const int n : nets_) {
    for (const int g : gpus_) net_gpu_.push_back(route(n, g));
  }
  for (const int g : gpus_) {
    gpu_nvs_.push_back(nvs_ < 0 ? Route{} : route(g, nvs_));
    nvs_gpu_.push_back(nvs_ < 0 ? Route{} : route(nvs_, g));
    float pci = 0;
    for (const int l : graph_.nodes[g].out) {
      if (graph_.links[l].type == LinkType::pci) pci = std::max(pci, graph_.links[l].bw);
    }
    pci_bw_.push_back(pci);
  }
}

const Route& Searcher::route(SearchPlace from, SearchPlace to) const {
  if (from.end == End::gpu && to.end == End::gpu)
    return gpu_gpu_[from.index * gpus_.size() + to.index];
  if (from.end == End::gpu && to.end == End::net)
    return gpu_net_[from.index * nets_.size() + to.index];
  if (from.end == End::net) return net_gpu_[from.index * gpus_.size() + to.index];
  return from.end == End::nvs ? nvs_gpu_[to.index] : gpu_nvs_[from.index];
}

void Searcher::prepare_nets() {
  const auto best = [&](int count, const auto& path_of) {
    std::vector<int> found;
    const Path* first = nullptr;
    for (int i = 0; i < count; ++i) {
      const Path& path = *path_of(i);
      if (!path.reaches() || path.bw <= 0) continue;
      if (first == nullptr || path.bw > first->bw ||
          (path.bw == first->bw && path.type < first->type)) {
        first = &path;
        found.clear();
      }
      if (path.bw == first->bw && path.type == first->type) found.push_back(i);
    }
    return found;
  };
  const int net_count = static_cast<int>(nets_.size());
  for (int n = 0; n < net_count; ++n) {
    near_gpus_.push_back(
        best(gpu_count(), [&](int g) { return net_gpu_[n * gpus_.size() + g].path; }));
  }
  std::vector<std::vector<int>> own(gpus_.size());
  for (int g = 0; g < gpu_count(); ++g) {
    const std::vector<int> locals =
        best(net_count, [&](int n) { return gpu_net_[g * nets_.size() + n].path; });
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
  const auto add = [](std::vector<int>& list, int n) {
    if (std::find(list.begin(), list.end(), n) == list.end()) list.push_back(n);
  };
  for (int type = 0; type <= static_cast<int>(PathType::dis); ++type) {
    auto& lists = net_lists_.emplace_back(gpus_.size() + 1);
    for (int wanted = -1; wanted < gpu_count(); ++wanted) {
      std::vector<int>& list = lists[wanted + 1];
      for (int g = 0; g < gpu_count(); ++g) {
        if (wanted >= 0 && wanted != g) continue;
        for (const int n : own[g]) add(list, n);
      }
      for (int t = 0; t <= type && t < static_cast<int>(PathType::dis); ++t) {
        for (int g = 0; g < gpu_count(); ++g) {
          if (wanted >= 0 && wanted != g) continue;
          for (int n = 0; n < net_count; ++n) {
            if (static_cast<int>(gpu_net_[g * nets_.size() + n].path->type) == t) add(list, n);
          }
        }
      }
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
    const int l = route.path->links[done];
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
  const Route& found = route(from, to);
  const Path& path = *found.path;
  if (!path.reaches() || path.type >= PathType::net) return false;
  const PathType worst = inside ? now_.type_intra : now_.type_inter;
  if (path.type > worst) return false;
  const bool chain = now_.pattern == Pattern::balanced_tree || now_.pattern == Pattern::tree ||
                     now_.pattern == Pattern::split_tree;
  // Trees carry data in both directions.
  if (chain && from.end != End::nvs && to.end != End::nvs && route(to, from).path->type > worst) {
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
  const Route& found = route(from, to);
  const float bw = (inside ? now_.bw_intra : now_.bw_inter) * share;
  const Node& start = graph_.nodes[from.end == End::gpu   ? gpus_[from.index]
                                   : from.end == End::net ? nets_[from.index]
                                                          : nvs_];
  std::size_t undone = 0;
  take(found, start, found.path->links.size(), -bw, undone);
  now_.hops -= share * static_cast<float>(found.path->hops());
}

}  // namespace ccl::topo::detail
