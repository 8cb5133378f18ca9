#include "gpu/order/order.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/fake_gpus.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {

// A driver that only records which stream waits for an event and which records it. Like CUDA's, it
// takes the null stream for the default stream of the calling thread's current context.
struct Stream {
  int context;
  unsigned long long number;
  CUgraph graph;  // that it captures
};
struct Event {
  int context;
  bool ended;
};
struct Graph {
  std::vector<std::pair<CUhostFn, void*>> objects{};
  std::vector<CUgraphNode> before_record{};  // what the node that gives the turn away comes after
  bool allocates = false;                    // such a graph loses no edge
};
struct OnStream {
  int context;
  CUstream stream;
  bool operator==(const OnStream&) const = default;
};

std::vector<OnStream> waits, records;
std::vector<int>& contexts = test::fake::contexts();  // of this thread, the current one last
bool events_end = true;                               // when they are recorded
bool all_ended = false;                               // events, also those that were recorded

bool captures_globally = false;  // a capture of some stream forbids calls to other threads, too

bool is_captured(CUstream stream) {
  return reinterpret_cast<Stream*>(stream)->graph != nullptr;
}
/// True if this thread may ask for a stream's context, by the strictest reading of CUDA's rules.
bool may_ask(CUstream stream) {
  const bool relaxed = test::fake::capture_mode() == CU_STREAM_CAPTURE_MODE_RELAXED;
  return !is_captured(stream) && (relaxed || !captures_globally);
}

CUresult place(CUstream stream, OnStream* at) {
  if (stream == nullptr && contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  const Stream* const of = reinterpret_cast<Stream*>(stream);
  *at = {of == nullptr ? contexts.back() : of->context, stream};
  return CUDA_SUCCESS;
}

/// The number of a further context of a GPU, which is not its primary one.
constexpr int further(int device) {
  return device + 16;
}

void add_streams(CudaDriver& cuda) {
  cuda.ctx_get_device = [](CUdevice* device) {
    if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *device = contexts.back() % 16;
    return CUDA_SUCCESS;
  };
  cuda.stream_create = [](CUstream* stream, unsigned) {
    *stream = reinterpret_cast<CUstream>(new Stream{contexts.back(), 0, nullptr});
    return CUDA_SUCCESS;
  };
  cuda.stream_destroy = [](CUstream stream) {
    delete reinterpret_cast<Stream*>(stream);
    return CUDA_SUCCESS;
  };
  cuda.stream_get_ctx = [](CUstream stream, CUcontext* context) {
    if (!may_ask(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *context =
        reinterpret_cast<CUcontext>(std::uintptr_t(reinterpret_cast<Stream*>(stream)->context + 1));
    return CUDA_SUCCESS;
  };
  cuda.stream_get_id = [](CUstream stream, unsigned long long* number) {
    if (is_captured(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *number = reinterpret_cast<Stream*>(stream)->number;
    return CUDA_SUCCESS;
  };
  cuda.stream_wait_event = [](CUstream stream, CUevent, unsigned) {
    OnStream at{};
    if (const CUresult e = place(stream, &at); e != CUDA_SUCCESS) return e;
    waits.push_back(at);
    return CUDA_SUCCESS;
  };
  cuda.event_create = [](CUevent* event, unsigned) {
    if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *event = reinterpret_cast<CUevent>(new Event{contexts.back(), false});
    return CUDA_SUCCESS;
  };
  cuda.event_destroy = [](CUevent event) {
    delete reinterpret_cast<Event*>(event);
    return CUDA_SUCCESS;
  };
  cuda.event_record = [](CUevent event, CUstream stream) {
    Event& of = *reinterpret_cast<Event*>(event);
    OnStream at{};
    if (const CUresult e = place(stream, &at); e != CUDA_SUCCESS) return e;
    if (at.context != of.context) return CUDA_ERROR_INVALID_HANDLE;
    of.ended = events_end;
    records.push_back(at);
    return CUDA_SUCCESS;
  };
  cuda.event_query = [](CUevent event) {
    return all_ended || reinterpret_cast<Event*>(event)->ended ? CUDA_SUCCESS
                                                               : CUDA_ERROR_NOT_READY;
  };
}

void add_graphs(CudaDriver& cuda) {
  cuda.stream_is_capturing = [](CUstream stream, CUstreamCaptureStatus* status) {
    const bool captures = reinterpret_cast<Stream*>(stream)->graph != nullptr;
    *status = captures ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  cuda.stream_get_capture_info = [](CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                    CUgraph* graph, const CUgraphNode** nodes,
                                    const CUgraphEdgeData**, std::size_t* count) {
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    const CUgraph of = reinterpret_cast<Stream*>(stream)->graph;
    if (id != nullptr) *id = reinterpret_cast<std::uintptr_t>(of);
    if (graph != nullptr) *graph = of;
    // The last launch, of which the stream says all that this driver knows.
    static CUgraphNode last;
    last = reinterpret_cast<CUgraphNode>(stream);
    if (nodes != nullptr) *nodes = &last;
    if (count != nullptr) *count = 1;
    return CUDA_SUCCESS;
  };
  cuda.graph_node_get_type = [](CUgraphNode, CUgraphNodeType* type) {
    *type = CU_GRAPH_NODE_TYPE_KERNEL;
    return CUDA_SUCCESS;
  };
  cuda.graph_kernel_node_get_params = [](CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* kernel) {
    kernel->ctx = test::fake::context_of(reinterpret_cast<Stream*>(node)->context);
    return CUDA_SUCCESS;
  };
  cuda.graph_add_event_record_node = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                        std::size_t count, CUevent) {
    *node = reinterpret_cast<CUgraphNode>(graph);
    reinterpret_cast<Graph*>(graph)->before_record.assign(after, after + count);
    return CUDA_SUCCESS;
  };
  cuda.graph_remove_dependencies = [](CUgraph graph, const CUgraphNode* from, const CUgraphNode*,
                                      const CUgraphEdgeData*, std::size_t count) {
    Graph& of = *reinterpret_cast<Graph*>(graph);
    if (of.allocates) return CUDA_ERROR_NOT_SUPPORTED;
    for (std::size_t n = 0; n < count; ++n) {
      if (std::erase(of.before_record, from[n]) != 1) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  };
  cuda.graph_add_dependencies = [](CUgraph graph, const CUgraphNode* from, const CUgraphNode*,
                                   const CUgraphEdgeData*, std::size_t count) {
    Graph& of = *reinterpret_cast<Graph*>(graph);
    for (std::size_t n = 0; n < count; ++n) {
      if (std::ranges::count(of.before_record, from[n]) != 0) return CUDA_ERROR_INVALID_VALUE;
      of.before_record.push_back(from[n]);
    }
    return CUDA_SUCCESS;
  };
  cuda.stream_update_capture_dependencies = [](CUstream, CUgraphNode*, const CUgraphEdgeData*,
                                               std::size_t, unsigned) { return CUDA_SUCCESS; };
  cuda.user_object_create = [](CUuserObject* object, void* held, CUhostFn gone, unsigned,
                               unsigned) {
    *object = reinterpret_cast<CUuserObject>(new std::pair<CUhostFn, void*>{gone, held});
    return CUDA_SUCCESS;
  };
  cuda.graph_retain_user_object = [](CUgraph graph, CUuserObject object, unsigned, unsigned) {
    auto* const held = reinterpret_cast<std::pair<CUhostFn, void*>*>(object);
    reinterpret_cast<Graph*>(graph)->objects.push_back(*held);
    delete held;
    return CUDA_SUCCESS;
  };
}

void destroy(Graph& graph) {
  for (const auto& [gone, held] : graph.objects) gone(held);
  graph.objects.clear();
}

std::shared_ptr<Gpu> gpu(int device) {
  CudaDriver cuda = test::fake::driver();
  add_streams(cuda);
  add_graphs(cuda);
  use_cuda_driver(cuda, 2);
  waits.clear();
  records.clear();
  contexts = {0};  // the thread is at device 0
  events_end = true;
  auto opened = Gpu::open(device);
  REQUIRE(opened);
  return *opened;
}

CUstream handle(Stream& stream) {
  return reinterpret_cast<CUstream>(&stream);
}

/// Makes a call on `stream` and returns the streams that waited for the call before.
std::vector<OnStream> call(GpuOrder& order, CUstream stream) {
  waits.clear();
  const auto begun = order.before(stream, std::make_shared<int>());
  INFO((begun ? std::string{} : begun.error().message()));
  REQUIRE(begun);
  const auto ended = order.after(stream);
  INFO((ended ? std::string{} : ended.error().message()));
  REQUIRE(ended);
  return waits;
}

using Waits = std::vector<OnStream>;

}  // namespace

TEST_CASE("the default stream is that of the communicator's GPU, wherever the thread is") {
  GpuOrder order{gpu(1)};
  Stream stream{1, 7, nullptr};
  CHECK(call(order, nullptr).empty());
  CHECK(call(order, handle(stream)) == Waits{{1, handle(stream)}});
  CHECK(call(order, nullptr) == Waits{{1, nullptr}});
  contexts.clear();  // a thread that has not used CUDA
  CHECK(call(order, handle(stream)) == Waits{{1, handle(stream)}});
  CHECK(call(order, nullptr) == Waits{{1, nullptr}});
  CHECK(records ==
        Waits{{1, nullptr}, {1, handle(stream)}, {1, nullptr}, {1, handle(stream)}, {1, nullptr}});
  CHECK(contexts.empty());
}

TEST_CASE("the GPU's context is current during a launch, and the thread's own again afterwards") {
  GpuOrder order{gpu(1)}, level{gpu(1)};
  Stream stream{1, 7, nullptr};
  for (const std::vector<int>& own : {std::vector<int>{}, {0}, {1}}) {
    for (const bool launched : {true, false}) {
      contexts = own;
      REQUIRE(order.before(handle(stream), nullptr));
      CHECK(test::fake::current() == 1);
      REQUIRE(level.before(handle(stream), nullptr));  // a launch of a level
      REQUIRE(level.after(handle(stream)));
      CHECK(test::fake::current() == 1);
      if (launched) {
        CHECK(order.after(handle(stream)));
      } else {
        order.give_up();
      }
      CHECK(contexts == own);
    }
    Stream foreign{0, 8, nullptr};
    CHECK(!order.before(handle(foreign), nullptr));
    CHECK(contexts == own);
  }
}

TEST_CASE("a stream of another GPU or context is refused before a launch, the next call is well") {
  const auto check = [](Stream foreign, const char* begin, const char* end) {
    GpuOrder order{gpu(1)};
    Stream own{1, 7, nullptr};
    (void)call(order, handle(own));
    records.clear();
    for (int i = 0; i < 2; ++i) {
      const auto refused = order.before(handle(foreign), std::make_shared<int>());
      REQUIRE(!refused);
      CHECK(refused.error().code == Errc::invalid_argument);
      CHECK(refused.error().what.starts_with(begin));
      CHECK(refused.error().what.ends_with(end));
    }
    CHECK(records.empty());
    CHECK(call(order, handle(own)).empty());
  };
  check({0, 8, nullptr},
        "the stream belongs to CUDA device 0 and the communicator to device 1; give a stream that ",
        "; give a stream that was made while device 1 was current");
  check({further(1), 8, nullptr}, "cannot mark work of the stream (",
        "; give a stream of the GPU's primary context, as cudaStreamCreate makes");
}

TEST_CASE("a captured stream of another GPU is refused, and the next call is well") {
  GpuOrder order{gpu(1)};
  Graph graph;
  Stream own{1, 7, nullptr}, foreign{0, 8, reinterpret_cast<CUgraph>(&graph)};
  (void)call(order, handle(own));
  records.clear();
  for (int i = 0; i < 2; ++i) {
    REQUIRE(order.before(handle(foreign), std::make_shared<int>()));
    const auto refused = order.after(handle(foreign));
    REQUIRE(!refused);
    CHECK(refused.error().code == Errc::invalid_argument);
    CHECK(refused.error().what.starts_with("the stream belongs to CUDA device 0"));
  }
  CHECK(records.empty());
  destroy(graph);
  foreign = {1, 8, reinterpret_cast<CUgraph>(&graph)};
  (void)call(order, handle(foreign));
  destroy(graph);
  (void)call(order, handle(own));
}

TEST_CASE("a graph that allocates memory gives its turn away after its last launch, as others do") {
  for (const bool allocates : {false, true}) {
    GpuOrder order{gpu(1)};
    Graph graph;
    graph.allocates = allocates;
    const CUgraph captured = reinterpret_cast<CUgraph>(&graph);
    Stream first{1, 7, captured}, second{1, 8, captured}, third{1, 9, captured};
    for (Stream* const stream : {&first, &second, &third}) (void)call(order, handle(*stream));
    std::vector<CUgraphNode> wanted{reinterpret_cast<CUgraphNode>(&third)};
    if (allocates) {
      wanted.insert(wanted.begin(), {reinterpret_cast<CUgraphNode>(&first),
                                     reinterpret_cast<CUgraphNode>(&second)});
    }
    CHECK(graph.before_record == wanted);
    Stream eager{1, 10, nullptr};
    CHECK(call(order, handle(eager)) == Waits{{1, handle(eager)}});
    destroy(graph);
  }
}

TEST_CASE("launches run beside a capture in global mode") {
  GpuOrder order{gpu(1)};
  Stream first{1, 7, nullptr}, second{1, 8, nullptr};
  captures_globally = true;
  CHECK(call(order, handle(first)).empty());
  CHECK(call(order, handle(second)) == Waits{{1, handle(second)}});
  CHECK(test::fake::capture_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL);
  captures_globally = false;
}

TEST_CASE("retired resources go when their launches have ended, wherever the thread is") {
  GpuOrder order{gpu(1)};
  Stream stream{1, 7, nullptr};
  events_end = false;
  (void)call(order, handle(stream));
  auto used = std::make_shared<int>();
  const std::weak_ptr<int> kept = used;
  order.retire(std::move(used));
  CHECK(!kept.expired());
  events_end = true;  // the next launch's event ends at once, and that of the retired
  (void)call(order, handle(stream));
  events_end = false;
  (void)call(order, handle(stream));
  order.retire(std::make_shared<int>());
  CHECK(kept.expired());
}

TEST_CASE("retired resources go without another launch or resource") {
  GpuOrder order{gpu(1)};
  Stream stream{1, 7, nullptr};
  events_end = false;
  (void)call(order, handle(stream));
  auto used = std::make_shared<int>();
  const std::weak_ptr<int> kept = used;
  order.retire(std::move(used));
  CHECK(order.release_retired());
  CHECK(!kept.expired());
  all_ended = true;
  CHECK(!order.release_retired());
  CHECK(kept.expired());
  all_ended = false;
  events_end = true;
}

TEST_CASE("a graph may be replayed as long as it exists") {
  GpuOrder order{gpu(0)};
  CHECK(!order.may_replay());
  Graph graph;
  Stream capturing{0, 8, reinterpret_cast<CUgraph>(&graph)};
  (void)call(order, handle(capturing));
  CHECK(order.may_replay());
  destroy(graph);
  CHECK(!order.may_replay());
}

TEST_CASE("retired resources stay while a launch is being made, which may use them") {
  GpuOrder order{gpu(1)};
  Stream stream{1, 7, nullptr};
  events_end = true;
  (void)call(order, handle(stream));
  auto used = std::make_shared<int>();
  const std::weak_ptr<int> kept = used;
  REQUIRE(order.before(handle(stream), nullptr));
  order.retire(std::move(used));  // as a thread of the library does after the kernel's launch
  CHECK(!kept.expired());
  events_end = false;
  REQUIRE(order.after(handle(stream)));
  order.retire(std::make_shared<int>());
  CHECK(!kept.expired());
  events_end = true;
  (void)call(order, handle(stream));
  order.retire(std::make_shared<int>());
  CHECK(kept.expired());
}

TEST_CASE("launches wait for replays as long as a graph exists") {
  GpuOrder order{gpu(0)};
  Stream stream{0, 7, nullptr};
  CHECK(call(order, handle(stream)).empty());
  CHECK(call(order, handle(stream)).empty());
  Graph first, second;
  Stream capturing{0, 8, reinterpret_cast<CUgraph>(&first)};
  (void)call(order, handle(capturing));
  capturing.graph = reinterpret_cast<CUgraph>(&second);
  (void)call(order, handle(capturing));
  for (int i = 0; i < 2; ++i) CHECK(call(order, handle(stream)) == Waits{{0, handle(stream)}});
  destroy(second);
  for (int i = 0; i < 2; ++i) CHECK(call(order, handle(stream)) == Waits{{0, handle(stream)}});
  destroy(first);
  // Behind the last replay; the launches that follow are in order by their stream.
  CHECK(call(order, handle(stream)) == Waits{{0, handle(stream)}});
  for (int i = 0; i < 2; ++i) CHECK(call(order, handle(stream)).empty());
  Graph third;
  capturing.graph = reinterpret_cast<CUgraph>(&third);
  (void)call(order, handle(capturing));
  CHECK(call(order, handle(stream)) == Waits{{0, handle(stream)}});
  destroy(third);
}
