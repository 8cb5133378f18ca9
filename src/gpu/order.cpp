#include "gpu/order.hpp"

#include <algorithm>

namespace ccl::detail {
namespace {

struct Graveyard {
  std::mutex mutex;
  std::vector<std::shared_ptr<void>> dead;
  static Graveyard& instance() {
    static Graveyard* const graveyard = new Graveyard;  // a graph may outlive everything
    return *graveyard;
  }
};

void CUDA_CB graph_has_gone(void* keep) {
  auto* const kept = static_cast<std::shared_ptr<void>*>(keep);
  Graveyard& graveyard = Graveyard::instance();
  const std::lock_guard lock{graveyard.mutex};
  graveyard.dead.push_back(std::move(*kept));
  delete kept;
}

}  // namespace

void bury_graphs() {
  std::vector<std::shared_ptr<void>> dead;
  Graveyard& graveyard = Graveyard::instance();
  const std::lock_guard lock{graveyard.mutex};
  dead.swap(graveyard.dead);
}

GpuOrder::~GpuOrder() {
  const Gpu::Current current{*gpu_};
  for (Retired& r : retired_) (void)gpu_->driver().event_destroy(r.event);
  if (turn_ != nullptr) (void)gpu_->driver().event_destroy(turn_);
}

Result<void> GpuOrder::make_event() {
  if (turn_ != nullptr) return {};
  const Gpu::Current current{*gpu_};
  return cuda_check(gpu_->driver().event_create(&turn_, CU_EVENT_DISABLE_TIMING), "make an event");
}

Result<void> GpuOrder::before(CUstream stream, const std::shared_ptr<void>& keep) {
  mutex_.lock();
  const CudaDriver& cuda = gpu_->driver();
  const auto locked = [&]() -> Result<void> {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    // The legacy stream cannot be captured, and must not be asked while another is.
    if (stream != nullptr) {
      CCL_CHECK(cuda_check(cuda.stream_is_capturing(stream, &status),
                           "ask whether the stream is being captured"));
    }
    capturing_ = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (capturing_) {
      cuuint64_t id = 0;
      CUgraph graph = nullptr;
      CCL_CHECK(cuda_check(
          cuda.stream_get_capture_info(stream, &status, &id, &graph, nullptr, nullptr, nullptr),
          "look at the capture"));
      if (id != capture_) {
        capture_ = id;
        ended_ = nullptr;
        ends_.clear();
        kept_.clear();
        graph_ = graph;
      }
      return enter_graph(stream, graph, keep);
    }
    if (graphs_) {
      return cuda_check(cuda.stream_wait_event(stream, turn_, CU_EVENT_WAIT_DEFAULT),
                        "wait for the launch before");
    }
    if (launched_ && stream != last_) {
      CCL_CHECK(make_event());
      CCL_CHECK(cuda_check(cuda.event_record(turn_, last_), "mark the launch before"));
      CCL_CHECK(cuda_check(cuda.stream_wait_event(stream, turn_, CU_EVENT_WAIT_DEFAULT),
                           "wait for the launch before"));
    }
    return {};
  };
  auto done = locked();
  if (!done) mutex_.unlock();
  return done;
}

Result<void> GpuOrder::enter_graph(CUstream stream, CUgraph graph,
                                   const std::shared_ptr<void>& keep) {
  const CudaDriver& cuda = gpu_->driver();
  if (std::find(kept_.begin(), kept_.end(), keep.get()) == kept_.end()) {
    CUuserObject object = nullptr;
    auto* const held = new std::shared_ptr<void>{keep};
    const CUresult made = cuda.user_object_create(&object, held, &graph_has_gone, 1,
                                                  CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (made != CUDA_SUCCESS) delete held;
    CCL_CHECK(cuda_check(made, "tie connections to a graph"));
    CCL_CHECK(cuda_check(cuda.graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE),
                         "tie connections to a graph"));
    kept_.push_back(keep.get());
  }
  if (ended_ == nullptr) {
    if (!graphs_) {
      CCL_CHECK(make_event());
      if (launched_) {
        const Gpu::Current relaxed{*gpu_};
        CCL_CHECK(cuda_check(cuda.event_record(turn_, last_), "mark the launch before"));
      }
      graphs_ = true;
    }
    return cuda_check(cuda.stream_wait_event(stream, turn_, CU_EVENT_WAIT_EXTERNAL),
                      "let the graph wait for its turn");
  }
  if (stream == in_graph_) return {};
  // After the collective before, which was on another stream of this capture.
  return cuda_check(
      cuda.stream_update_capture_dependencies(stream, ends_.data(), nullptr, ends_.size(),
                                              CU_STREAM_ADD_CAPTURE_DEPENDENCIES),
      "order two collectives of a graph");
}

Result<void> GpuOrder::after(CUstream stream) {
  const CudaDriver& cuda = gpu_->driver();
  const auto locked = [&]() -> Result<void> {
    if (!capturing_) {
      last_ = stream;
      launched_ = true;
      if (!graphs_) return {};
      return cuda_check(cuda.event_record(turn_, stream), "mark the launch");
    }
    CUstreamCaptureStatus status;
    const CUgraphNode* nodes = nullptr;
    std::size_t count = 0;
    CCL_CHECK(cuda_check(
        cuda.stream_get_capture_info(stream, &status, nullptr, nullptr, &nodes, nullptr, &count),
        "look at the capture"));
    const std::vector<CUgraphNode> ends(nodes, nodes + count);
    if (ended_ == nullptr) {
      CCL_CHECK(cuda_check(
          cuda.graph_add_event_record_node(&ended_, graph_, ends.data(), ends.size(), turn_),
          "let the graph give its turn away"));
    } else {
      const std::vector<CUgraphNode> to_old(ends_.size(), ended_), to_new(ends.size(), ended_);
      CCL_CHECK(cuda_check(cuda.graph_remove_dependencies(graph_, ends_.data(), to_old.data(),
                                                          nullptr, ends_.size()),
                           "let the graph give its turn away"));
      CCL_CHECK(cuda_check(
          cuda.graph_add_dependencies(graph_, ends.data(), to_new.data(), nullptr, ends.size()),
          "let the graph give its turn away"));
    }
    ends_ = ends;
    in_graph_ = stream;
    return {};
  };
  auto done = locked();
  mutex_.unlock();
  return done;
}

void GpuOrder::retire(std::shared_ptr<void> used) {
  const CudaDriver& cuda = gpu_->driver();
  const Gpu::Current current{*gpu_};
  const std::lock_guard lock{mutex_};
  CUevent event = nullptr;
  if (cuda.event_create(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
      cuda.ctx_record_event(gpu_->context(), event) != CUDA_SUCCESS) {
    (void)cuda.event_destroy(event);  // a stream is being captured: kept until the end
    event = nullptr;
  }
  retired_.push_back({event, std::move(used)});
  std::erase_if(retired_, [&](const Retired& r) {
    if (r.event == nullptr || cuda.event_query(r.event) != CUDA_SUCCESS) return false;
    (void)cuda.event_destroy(r.event);
    return true;
  });
}

void GpuOrder::drain() {
  const Gpu::Current current{*gpu_};
  const std::lock_guard lock{mutex_};
  if (launched_ || graphs_) (void)gpu_->driver().ctx_synchronize();
  retired_.clear();
}

}  // namespace ccl::detail
