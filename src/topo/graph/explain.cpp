#include <ccl/topo/explain.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace ccl::topo {
namespace {

const char* meaning(PathType type) {
  switch (type) {
    case PathType::loc:
      return "the same device";
    case PathType::nvl:
      return "NVLink alone, also through an NVSwitch";
    case PathType::nvb:
      return "NVLink, relayed by one other GPU";
    case PathType::c2c:
      return "chip to chip";
    case PathType::pix:
      return "at most one PCIe switch";
    case PathType::pxb:
      return "several PCIe switches and no CPU";
    case PathType::p2c:
      return "chip to chip to the CPU, from there PCIe";
    case PathType::pxn:
      return "through a GPU that is next to the NIC";
    case PathType::phb:
      return "through a CPU";
    case PathType::sys:
      return "between CPUs";
    case PathType::net:
      return "only over the network";
    case PathType::dis:
      break;
  }
  return "not at all";
}

class Explainer {
 public:
  Explainer(const Graph& graph, const Paths& paths, const PathRules& rules, int a, int b)
      : graph_(graph), paths_(paths), rules_(rules), a_(a), b_(b) {}

  std::vector<std::string> run() {
    const Path path = paths_.at(a_, b_);
    if (!path.reaches()) {
      say("{} does not reach {}: there is no chain of links between them that crosses at most one "
          "other GPU",
          graph_.label(a_), graph_.label(b_));
      return std::move(lines_);
    }
    say("{} {}", graph_.label(a_), way(graph_, path));
    say("{}: {}", name(path.type),
        path.type == PathType::loc && path.hops() > 0 ? "memory of one CPU" : meaning(path.type));
    narrowest(path);
    const NodeType first = graph_.nodes[a_].type, second = graph_.nodes[b_].type;
    rule(path, first, second);
    if (first == NodeType::gpu && second == NodeType::gpu && a_ != b_) {
      without_nvlink(path);
      between_gpus(path);
    }
    if (first == NodeType::gpu && second == NodeType::net) to_net(a_, b_, true);
    if (first == NodeType::net && second == NodeType::gpu) to_net(b_, a_, false);
    return std::move(lines_);
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> text, Args&&... args) {
    lines_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  /// Links of a path. Between hosts that no NVLink joins, a path has none.
  std::string way(const Graph& graph, const Path& path) const {
    if (path.links.empty() && a_ != b_) {
      return fmt::format("to {} over the network ({})", graph.label(b_), name(path.type));
    }
    return fmt::format("{} ({:g} GB/s, {})", print_path(graph, path), path.bw, name(path.type));
  }

  void narrowest(const Path& path) {
    int least = -1;
    for (const int l : path.links) {
      if (least < 0 || graph_.links[l].bw < graph_.links[least].bw) least = l;
    }
    if (path.hops() < 2) return;
    const Link& link = graph_.links[least];
    say("narrowest link: {} {:g} GB/s, {} to {}", name(link.type), link.bw, graph_.label(link.from),
        graph_.label(link.to));
  }

  /// Explains the rule that replaced the best wired path by the path in use.
  void rule(const Path& path, NodeType first, NodeType second) {
    const Path wired = paths_.wired(a_, b_);
    if (std::ranges::equal(wired.links, path.links)) {
      if (path.hops() == 0) return;
      if (path.type == PathType::nvl || path.type == PathType::nvb) {
        say("NVLink alone comes first, whatever else there is");
      } else {
        say("no way is NVLink alone or wider, and none as wide is shorter");
      }
      return;
    }
    say("as wired: {} ({:g} GB/s, {})", print_path(graph_, wired), wired.bw, name(wired.type));
    if (path.type == PathType::pxn) {
      say("taken instead, since the NIC's own GPU gets it {}, over NVLink from here",
          path.bw > wired.bw ? fmt::format("{:g} instead of {:g} GB/s", path.bw, wired.bw)
                             : std::string("past the CPU"));
    } else if (first == NodeType::gpu && second == NodeType::gpu) {
      say("not taken, since P2P is refused: data goes through memory of the receiver's CPU");
    } else {
      say("not taken, since GPU direct RDMA is refused: data goes through the memory of a CPU");
    }
  }

  void without_nvlink(const Path& path) {
    const auto is_nvlink = [&](int l) { return graph_.links[l].type == LinkType::nvl; };
    if (std::none_of(path.links.begin(), path.links.end(), is_nvlink)) return;
    Graph bare = graph_;
    for (Link& link : bare.links) {
      if (link.type == LinkType::nvl) link.bw = 0;
    }
    const Paths others = compute_paths(bare, rules_);
    const Path next = others.at(a_, b_);
    if (!next.reaches()) return;
    say("without NVLink: {}", way(bare, next));
  }

  void between_gpus(const Path& path) {
    const P2pAnswer p2p = check_p2p(graph_, paths_, rules_, a_, b_);
    say("P2P: {} ({})", p2p.allowed ? "yes" : "no", p2p.why);
    if (p2p.relay >= 0) say("relayed by {}", graph_.label(p2p.relay));
    if (p2p.read) say("the receiver reads instead of being written to (two sm_80 over NVLink)");
    const bool net = net_beats_p2p(graph_, paths_, a_, b_);
    if (p2p.allowed && !net) {
      say("transport: P2P");
    } else if (net) {
      say("transport: NET (both have NICs, no farther than PXB, that are wider than {:g} GB/s)",
          path.bw);
    } else if (rules_.shm_disabled) {
      say("transport: NET (P2P is refused and shared memory disabled)");
    } else {
      say("transport: SHM (host memory; no NICs next to both that are wider than {:g} GB/s)",
          path.bw);
    }
  }

  void to_net(int gpu, int net, bool sending) {
    for (const bool read : {sending, !sending}) {
      const GdrAnswer gdr = check_gdr(graph_, paths_, rules_, gpu, net, read);
      say("GPU direct RDMA {}: {} ({})", read ? "for sending" : "for receiving",
          gdr.allowed ? "yes" : "no", gdr.why);
    }
    say("transport: NET, by {} with {}", graph_.nodes[net].net.name,
        check_gdr(graph_, paths_, rules_, gpu, net, sending).allowed ? "the GPU's own memory"
                                                                     : "a copy in host memory");
    const std::vector<int> own = local_nets(graph_, paths_, gpu);
    if (own.empty()) return;
    const auto turn = std::find(own.begin(), own.end(), net);
    if (turn == own.end()) {
      say("{} would take {} for itself: {} and {:g} GB/s away", graph_.label(gpu),
          graph_.nodes[own[0]].net.name, name(paths_.wired(gpu, own[0]).type),
          paths_.wired(gpu, own[0]).bw);
    } else if (own.size() == 1) {
      say("it is the NIC that {} takes for messages", graph_.label(gpu));
    } else {
      say("it is NIC {} of the {} that {} takes for messages in turn, by channel and peer",
          turn - own.begin() + 1, own.size(), graph_.label(gpu));
    }
  }

  const Graph& graph_;
  const Paths& paths_;
  const PathRules& rules_;
  const int a_, b_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> explain(const Graph& graph, const Paths& paths, const PathRules& rules,
                                 int a, int b) {
  return Explainer(graph, paths, rules, a, b).run();
}

}  // namespace ccl::topo
