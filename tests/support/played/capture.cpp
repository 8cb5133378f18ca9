#include "support/played/capture.hpp"

#include <algorithm>
#include <atomic>
#include <functional>

namespace ccl::test::played {
namespace {

void add_after(GraphNode& node, GraphNode* first) {
  if (std::find(node.after.begin(), node.after.end(), first) == node.after.end()) {
    node.after.push_back(first);
  }
}
GraphNode* node_of(CUgraphNode handle) {
  return reinterpret_cast<GraphNode*>(handle);
}
Graph& graph_of(CUgraph handle) {
  return *reinterpret_cast<Graph*>(handle);
}
Capture* capture_of(CUstream handle) {
  Stream* const stream = stream_of(handle);
  return stream == nullptr ? nullptr : stream->capture.get();
}

CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                      CUgraph* graph, const CUgraphNode** ends, const CUgraphEdgeData**,
                      std::size_t* count) {
  Capture* const capture = capture_of(handle);
  *status = capture != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  if (capture == nullptr) return CUDA_SUCCESS;
  if (id != nullptr) *id = capture->id();
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(&capture->graph());
  const auto& all = capture->listed_ends(*stream_of(handle));
  if (ends != nullptr) *ends = all.data();
  if (count != nullptr) *count = all.size();
  return CUDA_SUCCESS;
}
CUresult update_dependencies(CUstream handle, CUgraphNode* nodes, const CUgraphEdgeData*,
                             std::size_t count, unsigned flags) {
  Capture* const capture = capture_of(handle);
  if (capture == nullptr || flags != CU_STREAM_ADD_CAPTURE_DEPENDENCIES) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<GraphNode*> all;
  for (std::size_t n = 0; n < count; ++n) all.push_back(node_of(nodes[n]));
  capture->also_after(*stream_of(handle), all);
  return CUDA_SUCCESS;
}
CUresult add_record(CUgraphNode* made, CUgraph graph, const CUgraphNode* after, std::size_t count,
                    CUevent event) {
  GraphNode& node = *graph_of(graph).nodes.emplace_back(std::make_unique<GraphNode>());
  node.kind = GraphNode::Kind::record;
  node.event = reinterpret_cast<Event*>(event);
  for (std::size_t n = 0; n < count; ++n) add_after(node, node_of(after[n]));
  *made = reinterpret_cast<CUgraphNode>(&node);
  return CUDA_SUCCESS;
}
CUresult add_dependencies(CUgraph, const CUgraphNode* from, const CUgraphNode* to,
                          const CUgraphEdgeData*, std::size_t count) {
  for (std::size_t n = 0; n < count; ++n) add_after(*node_of(to[n]), node_of(from[n]));
  return CUDA_SUCCESS;
}
CUresult remove_dependencies(CUgraph, const CUgraphNode* from, const CUgraphNode* to,
                             const CUgraphEdgeData*, std::size_t count) {
  for (std::size_t n = 0; n < count; ++n) {
    if (std::erase(node_of(to[n])->after, node_of(from[n])) == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

using ObjectPtr = std::shared_ptr<UserObject>;
CUresult create_object(CUuserObject* made, void* of, CUhostFn destroy, unsigned, unsigned) {
  *made = reinterpret_cast<CUuserObject>(new ObjectPtr{std::make_shared<UserObject>(of, destroy)});
  return CUDA_SUCCESS;
}
CUresult release_object(CUuserObject object, unsigned) {
  delete reinterpret_cast<ObjectPtr*>(object);
  return CUDA_SUCCESS;
}
CUresult retain_object(CUgraph graph, CUuserObject object, unsigned, unsigned flags) {
  graph_of(graph).objects.push_back(*reinterpret_cast<ObjectPtr*>(object));
  return (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0 ? release_object(object, 1) : CUDA_SUCCESS;
}

}  // namespace

CUresult Capture::begin(Stream& origin) {
  static std::atomic<cuuint64_t> next{1};
  if (origin.capture) return CUDA_ERROR_ILLEGAL_STATE;
  origin.capture = std::make_shared<Capture>();
  origin.capture->origin_ = &origin;
  origin.capture->id_ = next.fetch_add(1);
  origin.capture->streams_ = {&origin};
  return CUDA_SUCCESS;
}

CUresult Capture::end(Stream& origin, Graph** graph) {
  const auto keep = shared_from_this();
  if (&origin != origin_) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  goes_on_ = false;
  for (Stream* const stream : streams_) stream->capture.reset();
  *graph = graph_.release();
  return CUDA_SUCCESS;
}

std::vector<CUgraphNode> Capture::ends(const Stream& stream) const {
  std::vector<CUgraphNode> all;
  const auto found = ends_.find(&stream);
  if (found == ends_.end()) return all;
  for (GraphNode* const node : found->second) all.push_back(reinterpret_cast<CUgraphNode>(node));
  return all;
}
const std::vector<CUgraphNode>& Capture::listed_ends(const Stream& stream) {
  return listed_ = ends(stream);
}

GraphNode& Capture::add(Stream& stream, GraphNode::Kind kind) {
  GraphNode& node = *graph_->nodes.emplace_back(std::make_unique<GraphNode>());
  node.kind = kind;
  node.device = stream.device;
  node.after = ends_[&stream];
  ends_[&stream] = {&node};
  return node;
}
CUresult Capture::add_kernel(Stream& stream, Kernel kernel, bool early) {
  GraphNode& node = add(stream, GraphNode::Kind::kernel);
  node.kernel = std::move(kernel);
  const bool follows = node.after.size() == 1 && node.after[0]->kind == GraphNode::Kind::kernel;
  if (early && follows) node.early = node.after[0];
  return CUDA_SUCCESS;
}
CUresult Capture::add_act(Stream& stream, std::function<void()> act) {
  add(stream, GraphNode::Kind::act).act = std::move(act);
  return CUDA_SUCCESS;
}
CUresult Capture::add_wait(Stream& stream, Event& event) {
  add(stream, GraphNode::Kind::wait).event = &event;
  return CUDA_SUCCESS;
}
CUresult Capture::join(Stream& stream, const Event& event) {
  if (stream.capture && stream.capture.get() != this) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  if (!stream.capture) {
    stream.capture = shared_from_this();
    streams_.push_back(&stream);
  }
  std::vector<GraphNode*> nodes;
  for (const CUgraphNode node : event.captured) nodes.push_back(node_of(node));
  also_after(stream, nodes);
  return CUDA_SUCCESS;
}
void Capture::also_after(Stream& stream, const std::vector<GraphNode*>& nodes) {
  auto& ends = ends_[&stream];
  for (GraphNode* const node : nodes) {
    if (std::find(ends.begin(), ends.end(), node) == ends.end()) ends.push_back(node);
  }
}

CUresult launch_graph(const std::shared_ptr<Graph>& graph, CUstream handle) {
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Queue& queue = Queue::instance();
  const NodePtr first = std::make_shared<Node>(), end = std::make_shared<Node>();
  first->device = end->device = stream->device;
  queue.order(stream->last, first);
  queue.order(first, end);  // also without nodes
  std::map<const GraphNode*, NodePtr> made;
  for (const auto& of : graph->nodes) {
    const NodePtr node = made[of.get()] = std::make_shared<Node>();
    node->device = of->device;
    node->kernel = of->kernel;
    node->act = of->act;
    queue.set_places(of->device, places_of(of->device));
    queue.order(first, node);
    if (of->kind == GraphNode::Kind::wait) queue.order(of->event->node, node);
    queue.order(node, end);
  }
  for (const auto& of : graph->nodes) {
    for (const GraphNode* const ahead : of->after) {
      if (ahead == of->early) {
        queue.order_early(made[ahead], made[of.get()]);
      } else {
        queue.order(made[ahead], made[of.get()]);
      }
    }
    if (of->kind == GraphNode::Kind::record) {
      of->event->node = made[of.get()];
      of->event->times = std::make_shared<fake::Event>();
    }
  }
  end->act = [graph] {};  // a graph in use may be destroyed
  stream->last = end;
  stream->launch = nullptr;
  for (const auto& [of, node] : made) queue.submit(node);
  queue.submit(first);
  queue.submit(end);
  return CUDA_SUCCESS;
}

void add_graphs(detail::CudaDriver& cuda) {
  cuda.stream_is_capturing = [](CUstream stream, CUstreamCaptureStatus* status) {
    return capture_info(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
  };
  cuda.stream_get_capture_info = capture_info;
  cuda.stream_update_capture_dependencies = update_dependencies;
  cuda.graph_node_get_type = [](CUgraphNode node, CUgraphNodeType* type) {
    const bool kernel = node_of(node)->kind == GraphNode::Kind::kernel;
    *type = kernel ? CU_GRAPH_NODE_TYPE_KERNEL : CU_GRAPH_NODE_TYPE_EMPTY;
    return CUDA_SUCCESS;
  };
  cuda.graph_kernel_node_get_params = [](CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* kernel) {
    kernel->ctx = fake::context_of(node_of(node)->device);
    return CUDA_SUCCESS;
  };
  cuda.graph_add_event_record_node = add_record;
  cuda.graph_add_dependencies = add_dependencies;
  cuda.graph_remove_dependencies = remove_dependencies;
  cuda.user_object_create = create_object;
  cuda.user_object_release = release_object;
  cuda.graph_retain_user_object = retain_object;
}

}  // namespace ccl::test::played
