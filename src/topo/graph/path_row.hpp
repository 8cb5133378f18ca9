#pragma once

#include <ccl/topo/path.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ccl::topo::detail {

/// All paths to one node, packed: with thousands of GPUs there are millions of paths.
struct PathRow {
  struct Entry {
    PathType type = PathType::dis;
    float bw = 0;
    std::uint32_t first = 0;  // index into `links`
    std::uint32_t hops = 0;   // number of links
  };
  bool partial = false;  // true: only paths from GPUs, CPUs and NVSwitches, in order of their nodes
  std::vector<Entry> entries;
  std::vector<int> links;

  Path at(std::size_t entry) const {
    const Entry& e = entries[entry];
    return {e.type, e.bw, {links.data() + e.first, e.hops}};
  }
  /// Replaces a path by another, whose links are those of `first` and then those of `second`, which
  /// must not be links of this row.
  void set(std::size_t entry, PathType type, float bw, std::span<const int> first,
           std::span<const int> second);
};

/// Computes the rows of a graph as wired. The graph must outlive it.
class PathRows {
 public:
  explicit PathRows(const Graph& graph);
  /// Returns the best paths from all nodes to `target`, or, if `partial`, those from GPUs, CPUs and
  /// NVSwitches.
  PathRow to(int target, bool partial);
  /// Returns the index of each node in a partial row, or -1.
  const std::vector<int>& places() const { return places_; }

 private:
  struct Best {
    PathType type = PathType::dis;
    float bw = 0;
    int hops = 0;
    int first = -1;  // index into `steps_`
  };
  struct Step {
    int link, next;  // `next`: index into `steps_`, or -1
  };

  void find_dead_ends();
  void relax(int target, int node, int link);
  void pack(PathRow& row, int node) const;

  const Graph& graph_;
  std::vector<std::vector<int>> into_;     // links into each node
  std::vector<std::vector<int>> through_;  // of these, those from nodes that are no dead ends
  std::vector<char> dead_end_;
  std::vector<int> way_out_;        // of a dead end: its neighbor, or -1
  std::vector<int> places_, kept_;  // `kept_`: nodes of a partial row
  std::vector<Best> best_;
  std::vector<Step> steps_;  // paths share their ends
  std::vector<char> queued_;
  std::vector<int> queue_;
};

/// Rule by which two GPUs may access each other's memory; `check_p2p` gives reasons.
class P2pRule {
 public:
  P2pRule(const Graph& graph, const PathRules& rules);
  /// Worst path for these two.
  PathType level(int gpu_a, int gpu_b) const;
  bool allows(const Path& wired, int gpu_a, int gpu_b) const;

 private:
  const Graph& graph_;
  const PathRules& rules_;
  PathType level_ = PathType::pxb;
};

/// Returns `local_gpu` of each node that is a NET, and -1 for the others.
std::vector<int> local_gpus(const Graph& graph, const Paths& paths);

}  // namespace ccl::topo::detail
