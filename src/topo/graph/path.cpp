#include <ccl/topo/path.hpp>

#include <algorithm>
#include <memory>
#include <utility>

#include "topo/graph/path_row.hpp"

namespace ccl::topo {
namespace {

constexpr std::size_t max_net_paths = std::size_t{1} << 22;

bool same_links(const Path& path, const Path& first, const Path& second) {
  return path.hops() == first.hops() + second.hops() &&
         std::equal(first.links.begin(), first.links.end(), path.links.begin()) &&
         std::equal(second.links.begin(), second.links.end(), path.links.begin() + first.hops());
}

/// CPU node with the fewest hops to each GPU, or -1.
int nearest_cpu(const std::vector<int>& cpus, const Paths& wired, int gpu) {
  int best = -1;
  for (const int cpu : cpus) {
    const Path path = wired.wired(gpu, cpu);
    if (!path.reaches()) continue;
    if (best < 0 || path.hops() < wired.wired(gpu, best).hops()) best = cpu;
  }
  return best;
}

}  // namespace

/// Computes the paths as wired, and replaces those that the rules forbid.
class PathsBuilder {
 public:
  PathsBuilder(const Graph& graph, const PathRules& rules)
      : graph_(graph),
        rules_(rules),
        gpus_(graph.of(NodeType::gpu)),
        nets_(graph.of(NodeType::net)),
        changed_(graph.nodes.size()) {}

  Paths run(std::span<const int> whole) {
    find_wired(whole);
    const std::vector<int> cpus = graph_.of(NodeType::cpu);
    cpu_of_.assign(graph_.nodes.size(), -1);
    for (const int gpu : gpus_) cpu_of_[gpu] = nearest_cpu(cpus, wired_, gpu);
    between_gpus();
    publish();
    to_nets();
    publish();
    return std::move(paths_);
  }

 private:
  void find_wired(std::span<const int> whole) {
    const bool all = has_all_paths(graph_);
    detail::PathRows rows(graph_);
    wired_.places_ = rows.places();
    wired_.wired_.resize(graph_.nodes.size());
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      const NodeType type = graph_.nodes[n].type;
      if (type == NodeType::pci || type == NodeType::nic) continue;
      const bool partial =
          !all && type == NodeType::net && std::find(whole.begin(), whole.end(), n) == whole.end();
      detail::PathRow row = rows.to(n, partial);
      name_p2c(n, row);
      wired_.wired_[n] = std::make_shared<const detail::PathRow>(std::move(row));
    }
    wired_.to_ = wired_.wired_;
    paths_ = wired_;
  }

  /// Names the paths between GPUs and NETs that go chip to chip and then over PCIe.
  void name_p2c(int target, detail::PathRow& row) const {
    const NodeType type = graph_.nodes[target].type;
    if (type != NodeType::gpu && type != NodeType::net) return;
    for (const int from : type == NodeType::gpu ? nets_ : gpus_) {
      const std::size_t entry = std::size_t(row.partial ? wired_.places_[from] : from);
      const Path path = row.at(entry);
      const auto is_c2c = [&](int l) { return graph_.links[l].type == LinkType::c2c; };
      if (path.type == PathType::phb && std::any_of(path.links.begin(), path.links.end(), is_c2c)) {
        row.entries[entry].type = PathType::p2c;
      }
    }
  }

  /// Replaces the path that data takes.
  void replace(int from, int to, PathType type, const Path& first, const Path& second) {
    const float bw = std::min(first.bw, second.bw);
    const Path known = current(from, to);
    if (known.type == type && known.bw == bw && same_links(known, first, second)) return;
    detail::PathRow& row = change(to);
    row.set(place(row, from), type, bw, first.links, second.links);
  }
  void rename(int from, int to, PathType type) {
    if (current(from, to).type == type) return;
    detail::PathRow& row = change(to);
    row.entries[place(row, from)].type = type;
  }
  Path current(int from, int to) const {
    const detail::PathRow* const changed = changed_[to].get();
    return changed == nullptr ? paths_.at(from, to) : changed->at(place(*changed, from));
  }
  detail::PathRow& change(int to) {
    if (changed_[to] == nullptr) changed_[to] = std::make_shared<detail::PathRow>(*paths_.to_[to]);
    return *changed_[to];
  }
  std::size_t place(const detail::PathRow& row, int from) const {
    return std::size_t(row.partial ? paths_.places_[from] : from);
  }
  void publish() {
    for (std::size_t n = 0; n < changed_.size(); ++n) {
      if (changed_[n] != nullptr) paths_.to_[n] = std::move(changed_[n]);
    }
  }

  /// Peers without P2P use memory of the CPU next to the receiver.
  void between_gpus() {
    const detail::P2pRule p2p(graph_, rules_);
    for (const int a : gpus_) {
      for (const int b : gpus_) {
        if (a == b || p2p.allows(wired_.wired(a, b), a, b)) continue;
        through_cpu(a, b, cpu_of_[b]);
        const bool apart = graph_.nodes[a].host != graph_.nodes[b].host;
        if (rules_.shm_disabled || apart) rename(a, b, PathType::net);
      }
    }
  }

  /// Leads a path through the memory of a CPU, if both ends reach it.
  void through_cpu(int from, int to, int cpu) {
    if (cpu < 0) return;
    const Path first = wired_.wired(from, cpu), second = wired_.wired(cpu, to);
    if (!first.reaches() || !second.reaches()) return;
    replace(from, to, std::max(first.type, second.type), first, second);
  }

  void to_nets() {
    const std::vector<int> relays =
        rules_.pxn ? detail::local_gpus(graph_, wired_) : std::vector<int>();
    for (const int net : nets_) {
      const int relay = rules_.pxn ? relays[net] : -1;
      for (const int gpu : gpus_) {
        const bool relayed = relay >= 0 && relay != gpu && relays_to(net, relay, gpu);
        if (relayed) {
          // Sending only: the receiver's NIC writes directly to its own GPU.
          replace(gpu, net, PathType::pxn, paths_.at(gpu, relay), wired_.wired(relay, net));
        }
        if (check_gdr(graph_, wired_, rules_, gpu, net, false).allowed) continue;
        const int cpu = cpu_of_[gpu];
        through_cpu(net, gpu, cpu);
        if (!relayed) through_cpu(gpu, net, cpu);
      }
    }
  }

  bool relays_to(int net, int relay, int gpu) const {
    const Path own = wired_.wired(gpu, net), relayed = wired_.wired(relay, net);
    const PathType level = rules_.pxn_c2c ? PathType::p2c : PathType::pxb;
    const Path between = paths_.at(gpu, relay);
    // A narrow NVLink to the relay can be less than the GPU's own way.
    const bool wider = std::min(between.bw, relayed.bw) > own.bw;
    return relayed.type <= level && between.type <= PathType::nvl &&
           graph_.nodes[relay].host == graph_.nodes[gpu].host &&
           (wider || own.type > PathType::pxn) &&
           check_gdr(graph_, wired_, rules_, relay, net, true).allowed;
  }

  const Graph& graph_;
  const PathRules& rules_;
  const std::vector<int> gpus_, nets_;
  std::vector<int> cpu_of_;  // of each GPU, or -1
  Paths wired_, paths_;
  std::vector<std::shared_ptr<detail::PathRow>> changed_;
};

Path Paths::find(const Rows& rows, int from, int to) const {
  const detail::PathRow* const row = rows[std::size_t(to)].get();
  if (row == nullptr) return {};
  const int entry = row->partial ? places_[std::size_t(from)] : from;
  return entry < 0 ? Path{} : row->at(std::size_t(entry));
}

bool has_all_paths(const Graph& graph) {
  return graph.nodes.size() * graph.of(NodeType::net).size() <= max_net_paths;
}

Paths compute_paths(const Graph& graph, const PathRules& rules, std::span<const int> whole) {
  return PathsBuilder(graph, rules).run(whole);
}

}  // namespace ccl::topo
