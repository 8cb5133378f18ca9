#pragma once

#include <ccl/topo/graph.hpp>
#include <ccl/topo/xml.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ccl::topo {

/// Path between two nodes. The `Paths` that it is from must outlive it.
struct Path {
  PathType type = PathType::dis;
  float bw = 0;                ///< GB/s of the narrowest link
  std::span<const int> links;  ///< in order of travel

  /// Returns the number of links.
  int hops() const { return static_cast<int>(links.size()); }
  /// True if there is a path.
  bool reaches() const { return type != PathType::dis; }
};

/// Restrictions by the user or the machine. Defaults are those of NCCL 2.30.
struct PathRules {
  /// Worst path for P2P; unset: PXB, or SYS on AMD with up to 2 GPUs.
  std::optional<PathType> p2p_level;
  bool p2p_disabled = false;
  bool nvb_disabled = false;          ///< true: P2P never goes through a GPU
  bool shm_disabled = false;          ///< true: peers without P2P use the network
  std::optional<PathType> gdr_level;  ///< worst path for GPU direct RDMA; unset: P2C
  std::optional<bool> gdr_read;       ///< unset: from sm_80 on, with NVLink, or alone
  bool pxn = true;                    ///< true: sends go through a GPU that is closer to the NIC
  bool pxn_c2c = true;                ///< true: also if that GPU has a P2C path to the NIC
};

/// Permission of two GPUs to access each other's memory, with the reason.
struct P2pAnswer {
  bool allowed = false;
  bool read = false;  ///< read instead of write: pairs of Ampere GPUs over NVLink
  int relay = -1;     ///< node of the GPU between them, for NVB; -1: none
  std::string why;
};

/// Permission of a NIC to read or write a GPU's memory, with the reason.
struct GdrAnswer {
  bool allowed = false;
  std::string why;
};

namespace detail {
struct PathRow;
}

/// Best paths from every node to every GPU, CPU, NVSwitch and NET. Copies share them.
class Paths {
 public:
  /// Returns the path that data takes, after the P2P, GDR and PXN rules.
  Path at(int from, int to) const { return find(to_, from, to); }
  /// Returns the path as wired, before any rule.
  Path wired(int from, int to) const { return find(wired_, from, to); }

 private:
  friend class PathsBuilder;
  using Rows = std::vector<std::shared_ptr<const detail::PathRow>>;
  Path find(const Rows& rows, int from, int to) const;

  Rows to_, wired_;          // by target; null for PCI and NIC nodes
  std::vector<int> places_;  // of nodes in rows that do not have all
};

/// Returns the best paths. Paths over NVLink alone come first because they share no bandwidth with
/// NICs and the host, direct ones before relayed ones. Then come the widest, then the shortest. A
/// path crosses at most one other GPU: it enters over NVLink and continues over one link to its
/// end.
///
/// With more than 4 million pairs of a node and a NET, only GPUs, CPUs and NVSwitches have paths to
/// NETs. NETs in `whole` have paths from all nodes in any case.
///
/// Cost: O(targets * links * improvements).
Paths compute_paths(const Graph& graph, const PathRules& rules = {},
                    std::span<const int> whole = {});
/// True if `compute_paths` returns the paths from all nodes to all NETs without `whole`.
bool has_all_paths(const Graph& graph);

P2pAnswer check_p2p(const Graph& graph, const Paths& paths, const PathRules& rules, int gpu_a,
                    int gpu_b);
/// Tests the permission of NIC `net` for GPU `gpu`. `read` is true if the NIC reads GPU memory to
/// send.
GdrAnswer check_gdr(const Graph& graph, const Paths& paths, const PathRules& rules, int gpu,
                    int net, bool read);
/// True if no NVLink joins two GPUs, and both have a NIC no farther than PXB that accesses their
/// memory and is wider than the path between them.
bool net_beats_p2p(const Graph& graph, const Paths& paths, int gpu_a, int gpu_b);

/// Number of NICs that a GPU takes of those equally near to it (CCL_NETDEVS_POLICY).
struct NetDevsPolicy {
  enum class Kind { automatic, all, at_most };
  Kind kind = Kind::automatic;  ///< automatic: GPUs that are equally near to the NICs share them
  int most = 0;                 ///< for `at_most`
};
/// Parses "AUTO", "ALL" or "MAX:2", in any case. Returns false if `text` is none of these.
bool parse(std::string_view text, NetDevsPolicy& policy);
/// Returns the NICs of a GPU in the order in which channels take them; empty if it reaches none.
/// GPUs of one locality are spread over its NICs.
std::vector<int> local_nets(const Graph& graph, const Paths& paths, int gpu,
                            const NetDevsPolicy& policy = {});
/// Returns the NIC of a GPU for a channel, or -1 if the GPU reaches none: channels alternate
/// between its `local_nets`.
int local_net(const Graph& graph, const Paths& paths, int gpu, int channel,
              const NetDevsPolicy& policy = {});
/// Returns the NICs that a GPU reaches without a CPU, by itself or through the GPU next to the NIC.
/// Its messages may leave by them, on the receiver's rail. Empty if it reaches none through a GPU.
std::vector<int> rail_nets(const Graph& graph, const Paths& paths, int gpu);
/// Returns the GPU whose own NIC is `net`, or -1.
int local_gpu(const Graph& graph, const Paths& paths, int net);
/// Returns all nodes of `type` that are equally best for `node`.
std::vector<int> nearest(const Graph& graph, const Paths& paths, int node, NodeType type);
/// Returns the CPU node of a GPU, or -1.
int local_cpu(const Graph& graph, const Paths& paths, int gpu);
/// Returns the cores of the GPU's NUMA node as in the file ("00ffffff"); empty if unknown.
std::string cpu_affinity(const Graph& graph, const Paths& paths, int gpu);
/// Returns the numbers of the cores in such a mask, ascending; empty if it is none.
std::vector<int> cores_of(std::string_view mask);

/// Returns the part of the machine that `rank` can use together with others of `ranks` ranks. It
/// keeps GPUs that the rank reaches without a network. It keeps NETs only if some rank is outside.
/// Node indices change.
Graph trim(const Graph& graph, const Paths& paths, int rank, int ranks);
/// Returns the graph with only the marked nodes.
Graph select(const Graph& graph, const std::vector<char>& keep);

/// Adds a node for CPU rank `rank` at that CPU node.
void add_cpu_rank(Graph& graph, int cpu, int rank);
/// Adds `count` CPU ranks, one each, round robin over the NUMA nodes, for machines and
/// communicators without GPUs.
void add_cpu_ranks(Graph& graph, int count);

/// Takes a long text piece by piece.
using TextSink = std::function<void(std::string_view)>;
/// Writes all paths that start at GPUs and NETs, one per line, in NCCL's format.
void write_paths(const Graph& graph, const Paths& paths, const TextSink& sink);
/// Returns what `write_paths` writes.
std::string print_paths(const Graph& graph, const Paths& paths);
/// Returns the GPUs by rank, then the NETs by device number.
std::vector<int> ends_of(const Graph& graph);
/// Returns a table of types and bandwidths, from the row's GPU or NET to the column's, and each
/// GPU's cores.
std::string print_matrix(const Graph& graph, const Paths& paths);
/// Returns `<paths>`: each path between GPUs and NETs with its hops.
Element paths_to_xml(const Graph& graph, const Paths& paths);
/// Writes the text of `paths_to_xml`.
void write_paths_xml(const Graph& graph, const Paths& paths, const TextSink& sink);
/// Returns a path such as "--PCI(24)->CPU/0-1--SYS(10)->CPU/0-0".
std::string print_path(const Graph& graph, const Path& path);

}  // namespace ccl::topo
