#pragma once

#include <ccl/topo/graph.hpp>
#include <ccl/topo/xml.hpp>

#include <optional>
#include <string>
#include <vector>

namespace ccl::topo {

/// How one node reaches another: links in order of travel.
struct Path {
  PathType type = PathType::dis;
  float bw = 0;  // GB/s of the narrowest link
  std::vector<int> links;

  int hops() const { return static_cast<int>(links.size()); }
  bool reaches() const { return type != PathType::dis; }
};

/// What the user or the machine forbids. Defaults are NCCL 2.30's.
struct PathRules {
  std::optional<PathType> p2p_level;  // worst path for P2P; unset: PXB, SYS on AMD up to 2 GPUs
  bool p2p_disabled = false;
  bool nvb_disabled = false;          // never relay P2P through a GPU
  bool shm_disabled = false;          // with P2P refused too, peers become NET
  std::optional<PathType> gdr_level;  // worst path for GPU direct RDMA; unset: P2C
  std::optional<bool> gdr_read;       // unset: from sm_80 on, or with NVLink
  bool pxn = true;                    // send through a GPU that is closer to the NIC
  bool pxn_c2c = true;                // also if that GPU is P2C from it
};

/// May two GPUs access each other's memory, and why (not).
struct P2pAnswer {
  bool allowed = false;
  bool read = false;  // pull instead of push: pairs of Ampere GPUs over NVLink
  int relay = -1;     // node of the GPU in between, for NVB
  std::string why;
};

/// May a NIC read or write a GPU's memory, and why (not).
struct GdrAnswer {
  bool allowed = false;
  std::string why;
};

/// Best paths from every node to every GPU, CPU, NVSwitch and NET.
class Paths {
 public:
  Paths() = default;
  Paths(std::vector<std::vector<Path>> to, std::vector<std::vector<Path>> raw)
      : to_(std::move(to)), raw_(std::move(raw)) {}

  /// After P2P, GDR and PXN rules: the way that data takes.
  const Path& at(int from, int to) const { return to_[to].empty() ? none() : to_[to][from]; }
  /// As wired, before any rule.
  const Path& wired(int from, int to) const { return raw_[to].empty() ? none() : raw_[to][from]; }
  const std::vector<std::vector<Path>>& all_wired() const { return raw_; }

 private:
  static const Path& none() {
    static const Path path;
    return path;
  }
  std::vector<std::vector<Path>> to_, raw_;  // [to][from]; empty for PCI and NIC nodes
};

/// Paths over NVLink alone come first, relayed ones after direct ones; then the widest, then the
/// shortest. NVLink first, because it shares nothing with NICs and the host. A path crosses at most
/// one other GPU: in from NVLink, and from there over one link to its end.
/// Cost: O(targets * links * improvements).
Paths compute_paths(const Graph& graph, const PathRules& rules = {});

P2pAnswer check_p2p(const Graph& graph, const Paths& paths, const PathRules& rules, int gpu_a,
                    int gpu_b);
/// `read`: the NIC reads GPU memory (sending).
GdrAnswer check_gdr(const Graph& graph, const Paths& paths, const PathRules& rules, int gpu,
                    int net, bool read);
/// True if both GPUs have a NIC no farther than PXB that is wider than the path between them.
bool net_beats_p2p(const Graph& graph, const Paths& paths, int gpu_a, int gpu_b);

/// NIC of a GPU for a channel: GPUs of one locality spread over its NICs; channels take turns.
/// -1 if the GPU reaches none.
int local_net(const Graph& graph, const Paths& paths, int gpu, int channel);
/// GPU that has `net` as its own; -1 if none has.
int local_gpu(const Graph& graph, const Paths& paths, int net);
/// All nodes of `type` that are equally best for `node`.
std::vector<int> nearest(const Graph& graph, const Paths& paths, int node, NodeType type);
/// CPU node that a GPU hangs on; -1 if none.
int local_cpu(const Graph& graph, const Paths& paths, int gpu);
/// Cores of the GPU's NUMA node, as in the file ("00ffffff"), empty if unknown.
std::string cpu_affinity(const Graph& graph, const Paths& paths, int gpu);

/// The part of the machine that `rank` can use together with others of `ranks` ranks: GPUs that it
/// reaches without network, and NETs only if some rank is elsewhere. Node indices change.
Graph trim(const Graph& graph, const Paths& paths, int rank, int ranks);
/// Keeps the marked nodes.
Graph select(const Graph& graph, const std::vector<char>& keep);

/// A seat for `rank` at that CPU node.
void add_cpu_rank(Graph& graph, int cpu, int rank);
/// Puts one rank on each of `count` places of CPUs (round robin over NUMA nodes), for machines and
/// communicators without GPUs.
void add_cpu_ranks(Graph& graph, int count);

/// All paths that start at GPUs and NETs, one per line, in NCCL's format.
std::string print_paths(const Graph& graph, const Paths& paths);
/// GPUs by rank, then NETs by device number.
std::vector<int> ends_of(const Graph& graph);
/// A table of types and bandwidths, from the row's GPU or NET to the column's, and each GPU's
/// cores.
std::string print_matrix(const Graph& graph, const Paths& paths);
/// `<paths>`: each path between GPUs and NETs with its hops.
Element paths_to_xml(const Graph& graph, const Paths& paths);
/// "--PCI(24)->CPU/0-1--SYS(10)->CPU/0-0".
std::string print_path(const Graph& graph, const Path& path);

}  // namespace ccl::topo
