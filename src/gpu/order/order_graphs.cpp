// Launches into graphs that are being captured.
#include <algorithm>
#include <utility>

#include "gpu/order/graph_resources.hpp"
#include "gpu/order/order.hpp"

namespace ccl::detail {

Result<void> GpuOrder::check_device_of(const std::vector<CUgraphNode>& nodes) const {
  const CudaDriver& cuda = gpu_->driver();
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
    if (cuda.graph_node_get_type(node, &type) != CUDA_SUCCESS) continue;
    if (type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    if (cuda.graph_kernel_node_get_params(node, &kernel) != CUDA_SUCCESS) continue;
    if (kernel.ctx != nullptr) CCL_CHECK(check_device_of(kernel.ctx));
  }
  return {};
}

/// True if all captured graphs and their executables have been destroyed.
bool GpuOrder::graphs_are_gone() const {
  return std::ranges::all_of(captures_, [](const auto& c) { return c.second.alive.expired(); });
}

bool GpuOrder::may_replay() {
  const std::unique_lock lock{mutex_, std::try_to_lock};  // a launch may hold it for long
  return !lock || !graphs_are_gone();
}

Result<cuuint64_t> GpuOrder::note_capture(CUstream stream) {
  const CudaDriver& cuda = gpu_->driver();
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  CCL_CHECK(cuda_check(
      cuda.stream_get_capture_info(stream, &status, &id, &graph, nullptr, nullptr, nullptr),
      "look at the capture"));
  // A record without an end belongs to a failed first launch, perhaps before anything was tied.
  std::erase_if(captures_, [id](const auto& c) {
    return c.first != id && c.second.alive.expired() && c.second.ended != nullptr;
  });
  if (place_) {
    residency_->forget(*place_, [this](cuuint64_t n) { return captures_.count(n) == 0; });
  }
  capture_ = &captures_[id];
  capture_->graph = graph;
  return id;
}

Result<void> GpuOrder::tie(const Keep& of) {
  return tie(of.get());
}

Result<void> GpuOrder::tie(const std::shared_ptr<void>& keep) {
  const auto& kept = capture_->kept;
  if (std::find(kept.begin(), kept.end(), keep.get()) != kept.end()) return {};
  std::shared_ptr<void> alive = capture_->alive.lock();
  if (!alive) {
    std::shared_ptr<void> any = any_graph_.lock();
    if (!any) any = std::make_shared<char>();
    alive = std::make_shared<std::shared_ptr<void>>(any);
    any_graph_ = any;
  }
  CCL_CHECK(keep_for_graph(gpu_->driver(), capture_->graph, keep, alive));
  capture_->alive = alive;
  capture_->kept.push_back(keep.get());
  return {};
}

Result<void> GpuOrder::enter_graph(CUstream stream) {
  const CudaDriver& cuda = gpu_->driver();
  Capture& capture = *capture_;
  if (capture.ended == nullptr) {
    CCL_CHECK(make_event());
    graphs_ = true;
    return cuda_check(cuda.stream_wait_event(stream, turn_, CU_EVENT_WAIT_EXTERNAL),
                      "let the graph wait for its turn");
  }
  if (stream == capture.last) return {};
  // After the previous collective, which was on another stream of this capture.
  return cuda_check(cuda.stream_update_capture_dependencies(stream, capture.ends.data(), nullptr,
                                                            capture.ends.size(),
                                                            CU_STREAM_ADD_CAPTURE_DEPENDENCIES),
                    "order two collectives of a graph");
}

Result<void> GpuOrder::leave_graph(CUstream stream) {
  const CudaDriver& cuda = gpu_->driver();
  Capture& capture = *capture_;
  CUstreamCaptureStatus status;
  const CUgraphNode* nodes = nullptr;
  std::size_t count = 0;
  CCL_CHECK(cuda_check(
      cuda.stream_get_capture_info(stream, &status, nullptr, nullptr, &nodes, nullptr, &count),
      "look at the capture"));
  const std::vector<CUgraphNode> ends(nodes, nodes + count);
  if (stream != capture.last) CCL_CHECK(check_device_of(ends));
  if (capture.ended == nullptr) {
    CCL_CHECK(cuda_check(cuda.graph_add_event_record_node(&capture.ended, capture.graph,
                                                          ends.data(), ends.size(), turn_),
                         "let the graph give its turn away"));
  } else {
    const std::vector<CUgraphNode> to_old(capture.ends.size(), capture.ended),
        to_new(ends.size(), capture.ended);
    const CUresult removed = cuda.graph_remove_dependencies(
        capture.graph, capture.ends.data(), to_old.data(), nullptr, capture.ends.size());
    // CUDA removes no edge of a graph that allocates or frees memory. There the node keeps the
    // edges from all launches, of which the last follows the others.
    if (removed != CUDA_ERROR_NOT_SUPPORTED) {
      CCL_CHECK(cuda_check(removed, "let the graph give its turn away"));
    }
    CCL_CHECK(cuda_check(cuda.graph_add_dependencies(capture.graph, ends.data(), to_new.data(),
                                                     nullptr, ends.size()),
                         "let the graph give its turn away"));
  }
  if (place_) residency_->captured(*place_, capture_number_, ends);
  capture.ends = ends;
  capture.last = stream;
  return {};
}

}  // namespace ccl::detail
