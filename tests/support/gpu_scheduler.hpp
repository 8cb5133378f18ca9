#pragma once

// Launches of several ranks in one process, on GPUs that hold a limited number of blocks. The
// streams' contents come from `GpuOrder`, through a CUDA driver that only notes the calls.
#include <ccl/types/word.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/order/order.hpp"
#include "support/fake_gpus.hpp"

namespace ccl::test {

/// An event: how often it was recorded, and which of the records has been reached.
struct ScheduledEvent {
  int recorded = 0, reached = 0;
  bool destroyed = false;
};

/// Entry of a stream.
struct ScheduledWork {
  enum Kind { wait, record, launch } kind = launch;
  ScheduledEvent* event = nullptr;
  int number = 0;  // of the record; of a launch among those of its communicator
  int communicator = 0, blocks = 0;
  bool early = false, ended = false;
  int cluster = 1;            // blocks of a cluster, which have their places in one GPC
  int placed = 0;             // blocks on the GPU
  std::vector<int> in_gpc{};  // those in each GPC
};

struct ScheduledStream {
  std::vector<std::unique_ptr<ScheduledWork>> work;
  std::size_t next = 0;  // all before have ended
  int gpu = 0;
  unsigned long long number = 0;
  cuuint64_t capture = 0;                // 0: none
  std::vector<CUgraphNode> nodes;        // the last of the capture
  std::vector<ScheduledEvent*> outside;  // external waits in the capture
};

/// Schedules GPUs, each of which is one rank. A launch ends when all its blocks are on all GPUs
/// that make it. The order in which blocks get a place is random, and so are the places. A GPU has
/// eight processing clusters (GPCs).
class GpuScheduler {
 public:
  explicit GpuScheduler(int gpus, int multiprocessors) : multiprocessors_{multiprocessors} {
    detail::CudaDriver cuda = fake::driver();
    for (int gpu = 0; gpu < gpus; ++gpu) fake::gpus().multiprocessors[gpu] = multiprocessors;
    cuda.stream_is_capturing = [](CUstream stream, CUstreamCaptureStatus* status) {
      *status =
          of(stream).capture == 0 ? CU_STREAM_CAPTURE_STATUS_NONE : CU_STREAM_CAPTURE_STATUS_ACTIVE;
      return CUDA_SUCCESS;
    };
    note_captures(cuda);
    cuda.stream_get_ctx = [](CUstream stream, CUcontext* context) {
      *context = fake::context_of(of(stream).gpu);
      return CUDA_SUCCESS;
    };
    cuda.stream_get_id = [](CUstream stream, unsigned long long* number) {
      if (of(stream).capture != 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      *number = of(stream).number;
      return CUDA_SUCCESS;
    };
    cuda.event_create = [](CUevent* event, unsigned) {
      *event = reinterpret_cast<CUevent>(&events().emplace_back());
      return CUDA_SUCCESS;
    };
    cuda.event_destroy = [](CUevent event) {
      of(event).destroyed = true;
      return CUDA_SUCCESS;
    };
    cuda.event_record = [](CUevent event, CUstream stream) {
      add(stream,
          {.kind = ScheduledWork::record, .event = &of(event), .number = ++of(event).recorded});
      return CUDA_SUCCESS;
    };
    cuda.event_query = [](CUevent event) {
      return of(event).reached == of(event).recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    cuda.stream_wait_event = [](CUstream stream, CUevent event, unsigned flags) {
      if (of(stream).capture != 0) {
        if (flags == CU_EVENT_WAIT_EXTERNAL) of(stream).outside.push_back(&of(event));
        return CUDA_SUCCESS;
      }
      if (const auto before = before_waits().load()) before();
      add(stream, {.kind = ScheduledWork::wait, .event = &of(event), .number = of(event).recorded});
      return CUDA_SUCCESS;
    };
    detail::use_cuda_driver(cuda, gpus);
  }

  CUstream stream(int gpu) {
    streams_.push_back(std::make_unique<ScheduledStream>());
    streams_.back()->gpu = gpu;
    streams_.back()->number = streams_.size();
    return reinterpret_cast<CUstream>(streams_.back().get());
  }
  /// Called in each wait of a stream for an event, outside of captures; null: nothing.
  static std::atomic<void (*)()>& before_waits() {
    static std::atomic<void (*)()> of_process{nullptr};
    return of_process;
  }
  /// Queues a launch of a communicator, as the runtime does. `always_early` ignores its share.
  Result<void> launch(detail::GpuOrder& order, int communicator, int number, int blocks,
                      CUstream stream, bool always_early = false) {
    CCL_CHECK(order.before(stream, nullptr));
    auto whole = detail::LaunchShare::whole_gpu();
    detail::LaunchShare* const share = always_early ? &whole : order.share();
    add(stream, {.kind = ScheduledWork::launch,
                 .number = number,
                 .communicator = communicator,
                 .blocks = blocks,
                 .early = share != nullptr && share->take(blocks),
                 .cluster = share == nullptr   ? 1
                            : always_clustered ? detail::LaunchShare{0, 0, 4}.cluster_of(blocks)
                                               : share->cluster_of(blocks)});
    return order.after(stream);
  }
  bool always_clustered = false;  // launches have clusters of 4 blocks whatever their shares say
  /// Destroys all graphs.
  static void drop_graphs() {
    for (const auto& [destroy, held] : std::exchange(held_by_graphs(), {})) destroy(held);
  }
  /// Runs all that is queued. Returns false if nothing goes on before all has ended.
  bool run(unsigned seed) {
    std::mt19937 random{seed};
    for (bool goes_on = true; goes_on;) {
      const bool ends_first = random() % 2 == 0;
      goes_on = ends_first ? end_one() || place_one(random) : place_one(random) || end_one();
    }
    return std::ranges::all_of(streams_, [](const auto& s) { return s->next == s->work.size(); });
  }

  static ScheduledStream& of(CUstream stream) {
    return *reinterpret_cast<ScheduledStream*>(stream);
  }
  static ScheduledEvent& of(CUevent event) { return *reinterpret_cast<ScheduledEvent*>(event); }

 private:
  using Held = std::pair<CUhostFn, void*>;
  static std::vector<Held>& held_by_graphs() {
    static std::vector<Held> all;
    return all;
  }
  /// Captures note the last nodes of their streams. Nothing replays them.
  static void note_captures(detail::CudaDriver& cuda) {
    cuda.stream_get_capture_info = [](CUstream stream, CUstreamCaptureStatus* status,
                                      cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                                      const CUgraphEdgeData**, std::size_t* count) {
      *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
      if (id != nullptr) *id = of(stream).capture;
      if (graph != nullptr) *graph = nullptr;
      if (nodes != nullptr) *nodes = of(stream).nodes.data();
      if (count != nullptr) *count = of(stream).nodes.size();
      return CUDA_SUCCESS;
    };
    cuda.stream_update_capture_dependencies = [](CUstream stream, CUgraphNode* nodes,
                                                 const CUgraphEdgeData*, std::size_t count,
                                                 unsigned) {
      of(stream).nodes.insert(of(stream).nodes.end(), nodes, nodes + count);
      return CUDA_SUCCESS;
    };
    cuda.user_object_create = [](CUuserObject*, void* held, CUhostFn destroy, unsigned, unsigned) {
      held_by_graphs().emplace_back(destroy, held);
      return CUDA_SUCCESS;
    };
    cuda.graph_retain_user_object = [](CUgraph, CUuserObject, unsigned, unsigned) {
      return CUDA_SUCCESS;
    };
    cuda.graph_add_event_record_node = [](CUgraphNode* node, CUgraph, const CUgraphNode*,
                                          std::size_t, CUevent event) {
      *node = reinterpret_cast<CUgraphNode>(event);
      return CUDA_SUCCESS;
    };
    cuda.graph_remove_dependencies = [](CUgraph, const CUgraphNode*, const CUgraphNode*,
                                        const CUgraphEdgeData*,
                                        std::size_t) { return CUDA_SUCCESS; };
    cuda.graph_add_dependencies = cuda.graph_remove_dependencies;
  }
  static std::uintptr_t& last_node() {
    static std::uintptr_t last = 0;
    return last;
  }
  /// All events. Streams use those that were destroyed, too.
  static std::deque<ScheduledEvent>& events() {
    static std::deque<ScheduledEvent> all;
    return all;
  }
  static void add(CUstream stream, const ScheduledWork& work) {
    if (ScheduledStream& on = of(stream); on.capture != 0) {
      on.nodes = {reinterpret_cast<CUgraphNode>(++last_node())};
      return;
    }
    of(stream).work.push_back(std::make_unique<ScheduledWork>(work));
  }
  /// Launches of a stream that may have blocks on the GPU: the first, and the early ones behind it.
  static std::vector<ScheduledWork*> started(const ScheduledStream& stream) {
    std::vector<ScheduledWork*> all;
    for (std::size_t n = stream.next; n < stream.work.size(); ++n) {
      ScheduledWork& work = *stream.work[n];
      if (work.kind == ScheduledWork::record)
        continue;  // does not keep the next launch from starting
      if (work.kind == ScheduledWork::wait) break;
      const bool first = all.empty() && n == stream.next;
      if (!first && (!work.early || all.empty() || all.back()->placed < all.back()->blocks)) break;
      all.push_back(&work);
    }
    return all;
  }
  static constexpr int gpcs = 8;
  /// Free places of each GPC of a GPU.
  std::vector<int> free_places(int gpu) const {
    std::vector<int> free;
    for (int g = 0; g < gpcs; ++g) {
      free.push_back(multiprocessors_ / gpcs + (g < multiprocessors_ % gpcs ? 1 : 0));
    }
    for (const auto& stream : streams_) {
      if (stream->gpu != gpu) continue;
      for (const auto& work : stream->work) {
        if (work->ended || work->in_gpc.empty()) continue;
        for (int g = 0; g < gpcs; ++g) free[std::size_t(g)] -= work->in_gpc[std::size_t(g)];
      }
    }
    return free;
  }
  /// Gives some blocks of a launch a place.
  bool place_one(std::mt19937& random) {
    std::vector<std::pair<ScheduledWork*, int>> waiting;
    for (const auto& stream : streams_) {
      for (ScheduledWork* work : started(*stream)) {
        if (work->placed < work->blocks) waiting.emplace_back(work, stream->gpu);
      }
    }
    std::shuffle(waiting.begin(), waiting.end(), random);
    for (const auto& [work, gpu] : waiting) {
      std::vector<int> free = free_places(gpu);
      if (work->in_gpc.empty()) work->in_gpc.assign(gpcs, 0);
      const int clusters = (work->blocks - work->placed) / work->cluster;
      bool placed = false;
      for (int more = 1 + int(random() % unsigned(clusters)); more > 0; --more) {
        const auto first = random() % gpcs;
        for (int k = 0; k < gpcs; ++k) {
          const auto g = std::size_t((first + unsigned(k)) % gpcs);
          if (free[g] < work->cluster) continue;
          free[g] -= work->cluster;
          work->in_gpc[g] += work->cluster;
          work->placed += work->cluster;
          placed = true;
          break;
        }
      }
      if (placed) return true;
    }
    return false;
  }
  /// Ends the first entry of some stream.
  bool end_one() {
    for (const auto& stream : streams_) {
      if (stream->next == stream->work.size()) continue;
      ScheduledWork& work = *stream->work[stream->next];
      if (work.kind == ScheduledWork::wait && work.event->reached < work.number) continue;
      if (work.kind == ScheduledWork::launch && !is_complete(work)) continue;
      if (work.kind == ScheduledWork::record) work.event->reached = work.number;
      work.ended = true;
      ++stream->next;
      return true;
    }
    return false;
  }
  /// True if the launch has all its blocks on all GPUs and is the first that runs there, or has
  /// ended.
  bool is_complete(const ScheduledWork& launch) const {
    for (const auto& stream : streams_) {
      for (std::size_t n = stream->next; n < stream->work.size(); ++n) {
        const ScheduledWork& other = *stream->work[n];
        if (other.kind != ScheduledWork::launch || other.communicator != launch.communicator ||
            other.number != launch.number) {
          continue;
        }
        if (n != stream->next || other.placed < other.blocks) return false;
      }
    }
    return true;
  }

  int multiprocessors_;
  std::vector<std::unique_ptr<ScheduledStream>> streams_;
};

}  // namespace ccl::test
