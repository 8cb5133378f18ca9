#pragma once

// Graphs of played GPUs: what a capture records, and its replays.
#include <cuda.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "support/played/streams.hpp"

namespace ccl::test::played {

/// A `CUgraphNode` points to one.
struct GraphNode {
  enum class Kind { kernel, act, record, wait } kind = Kind::act;
  int device = 0;
  Kernel kernel{};
  std::function<void()> act{};
  Event* event = nullptr;           // of a record or a wait
  std::vector<GraphNode*> after{};  // without duplicates
  GraphNode* early = nullptr;       // one of these, a launch that this launch need not wait for
};

/// Object that the user of a graph has tied to it. A `CUuserObject` points to one.
struct UserObject {
  void* of;
  CUhostFn destroy;
  ~UserObject() { destroy(of); }
};

/// A `CUgraph` points to one; a `CUgraphExec` to a copy of its pointer.
struct Graph {
  std::vector<std::unique_ptr<GraphNode>> nodes{};
  std::vector<std::shared_ptr<UserObject>> objects{};
};

/// Capture of one or more streams, until it ends.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  static CUresult begin(Stream& origin);
  /// Ends the capture that `origin` has begun.
  CUresult end(Stream& origin, Graph** graph);

  bool goes_on() const { return goes_on_; }
  cuuint64_t id() const { return id_; }
  Graph& graph() { return *graph_; }
  /// What the next node of `stream` will come after.
  std::vector<CUgraphNode> ends(const Stream& stream) const;
  const std::vector<CUgraphNode>& listed_ends(const Stream& stream);
  CUresult add_kernel(Stream& stream, Kernel kernel, bool early);
  CUresult add_act(Stream& stream, std::function<void()> act);
  CUresult add_wait(Stream& stream, Event& event);
  /// Lets `stream` go on after what the event recorded in this capture.
  CUresult join(Stream& stream, const Event& event);
  void also_after(Stream& stream, const std::vector<GraphNode*>& nodes);

 private:
  GraphNode& add(Stream& stream, GraphNode::Kind kind);
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  std::map<const Stream*, std::vector<GraphNode*>> ends_;
  std::vector<Stream*> streams_;
  std::vector<CUgraphNode> listed_;
  Stream* origin_ = nullptr;
  cuuint64_t id_ = 0;
  bool goes_on_ = true;
};

/// Queues a replay on `stream`.
CUresult launch_graph(const std::shared_ptr<Graph>& graph, CUstream stream);

}  // namespace ccl::test::played
