#include "support/played/streams.hpp"

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "support/played/capture.hpp"
#include <sys/mman.h>

namespace ccl::test::played {
namespace {

struct Streams {
  std::mutex mutex;
  unsigned long long next = 16;  // CUDA's own streams have the numbers below
  std::map<int, std::unique_ptr<Stream>> of_device;
  std::set<Stream*> made;
  std::map<int, std::pair<int, CUresult>> failing;  // launches to go, by device
  std::recursive_mutex calls;                       // several threads may use a stream or an event
  std::atomic<int> early{0};                        // launches behind one that runs
  static Streams& instance() {
    static auto* const all = new Streams;
    return *all;
  }
};

using CallsLock = std::lock_guard<std::recursive_mutex>;

Event& event_of(CUevent handle) {
  return *reinterpret_cast<Event*>(handle);
}

/// Queues `node` behind all that the stream has.
void append(Stream& stream, const NodePtr& node) {
  node->device = stream.device;
  Queue& queue = Queue::instance();
  queue.order(stream.last, node);
  stream.last = node;
  stream.launch = nullptr;
  queue.submit(node);
}
NodePtr act(std::function<void()> what) {
  auto node = std::make_shared<Node>();
  node->act = std::move(what);
  return node;
}

CUresult append_act(CUstream handle, std::function<void()> what) {
  const CallsLock calls{Streams::instance().calls};
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return stream->capture->add_act(*stream, std::move(what));
  append(*stream, act(std::move(what)));
  return CUDA_SUCCESS;
}

CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream handle) {
  const CallsLock calls{Streams::instance().calls};
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) {  // a replay may come when the stream is no more
    const auto copies = std::make_shared<fake::Stream>();
    copies->device = stream->device;
    return stream->capture->add_act(*stream, [=] {
      (void)fake::copy(to, from, bytes, reinterpret_cast<CUstream>(copies.get()));
    });
  }
  const auto run = [=] {
    return fake::copy(to, from, bytes, reinterpret_cast<CUstream>(&stream->copies));
  };
  // A copy that may run at once gives its error to the caller, as one of the fake driver does.
  if (!stream->last || stream->last->done) return run();
  return append_act(handle, [run] { (void)run(); });
}
bool is_device_memory(CUdeviceptr at) {
  const std::lock_guard lock{fake::gpus().mutex};
  return fake::gpus().region(reinterpret_cast<const void*>(at)) != nullptr;
}
/// Sets bytes. Zeros of whole pages of a GPU's memory are given back to the system, since most of
/// them are never used.
void set(CUdeviceptr at, unsigned char value, std::size_t bytes) {
  constexpr CUdeviceptr page = 4096;
  auto* const first = reinterpret_cast<void*>(at);
  const bool pages = value == 0 && at % page == 0 && bytes % page == 0 && bytes != 0;
  if (pages && is_device_memory(at) && ::madvise(first, bytes, MADV_REMOVE) == 0) return;
  std::memset(first, value, bytes);
}
CUresult clear(CUdeviceptr at, unsigned char value, std::size_t bytes, CUstream stream) {
  return append_act(stream, [=] { set(at, value, bytes); });
}

CUresult record(CUevent handle, CUstream on) {
  const CallsLock calls{Streams::instance().calls};
  Stream* const stream = stream_of(on);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Event& event = event_of(handle);
  if (stream->capture) {
    event.capture = stream->capture;
    event.captured = stream->capture->ends(*stream);
    return CUDA_SUCCESS;
  }
  const auto times = event.times = std::make_shared<fake::Event>();
  const NodePtr node = act([times, stream] {
    *times = {stream->copies.busy_until, stream->copies.seen_at, stream->copies.stuck};
  });
  event.capture = nullptr;
  event.node = node;
  const NodePtr launch = stream->launch;  // an early launch may still follow it
  append(*stream, node);
  stream->launch = launch;
  return CUDA_SUCCESS;
}
CUresult await(CUstream handle, CUevent waited, unsigned flags) {
  const CallsLock calls{Streams::instance().calls};
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Event& event = event_of(waited);
  if (event.capture && event.capture->goes_on()) return event.capture->join(*stream, event);
  if (stream->capture) {
    if ((flags & CU_EVENT_WAIT_EXTERNAL) == 0) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    return stream->capture->add_wait(*stream, event);
  }
  const NodePtr node = act({});
  Queue::instance().order(event.node, node);
  append(*stream, node);
  return CUDA_SUCCESS;
}

CUresult make_stream(CUstream* handle, unsigned) {
  auto stream = std::make_unique<Stream>();
  stream->device = stream->copies.device = fake::current();
  Streams& all = Streams::instance();
  const std::lock_guard lock{all.mutex};
  stream->number = all.next++;
  all.made.insert(stream.get());
  *handle = reinterpret_cast<CUstream>(stream.release());
  return CUDA_SUCCESS;
}
CUresult destroy_stream(CUstream handle) {
  const CallsLock calls{Streams::instance().calls};
  auto* const stream = reinterpret_cast<Stream*>(handle);
  Streams& all = Streams::instance();
  const std::lock_guard lock{all.mutex};
  if (all.made.erase(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
  // What is queued may still use it.
  const NodePtr end = act([stream] { delete stream; });
  Queue::instance().order(stream->last, end);
  Queue::instance().submit(end);
  return CUDA_SUCCESS;
}
NodePtr last_of(const Stream& stream) {
  const CallsLock calls{Streams::instance().calls};
  return stream.last;
}
CUresult synchronize(CUstream handle) {
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Queue::instance().wait(last_of(*stream));
  return stream->copies.stuck ? CUDA_ERROR_LAUNCH_TIMEOUT : CUDA_SUCCESS;
}

CUresult query(CUevent handle) {
  const CallsLock calls{Streams::instance().calls};
  const Event& event = event_of(handle);
  if (event.node && !event.node->done) return CUDA_ERROR_NOT_READY;
  const fake::Event& times = *event.times;
  const bool over = !times.never && fake::Clock::now() >= std::max(times.at, times.seen_at);
  return over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

}  // namespace

Stream* stream_of(CUstream handle) {
  Streams& all = Streams::instance();
  const std::lock_guard lock{all.mutex};
  auto* const stream = reinterpret_cast<Stream*>(handle);
  if (stream != nullptr) return all.made.count(stream) != 0 ? stream : nullptr;
  auto& own = all.of_device[fake::current()];
  if (!own) {
    own = std::make_unique<Stream>();
    own->device = own->copies.device = fake::current();
    own->number = 1;
  }
  return own.get();
}

void fail_launch(int device, CUresult code, int after) {
  Streams& all = Streams::instance();
  const std::lock_guard lock{all.mutex};
  all.failing[device] = {after, code};
}

unsigned places_of(int device) {
  const auto& counts = fake::gpus().multiprocessors;
  const auto count = counts.find(device);
  return count == counts.end() ? 1 : unsigned(count->second);
}

namespace {
/// The code with which this launch is to fail.
CUresult failure_of(int device) {
  Streams& all = Streams::instance();
  const std::lock_guard lock{all.mutex};
  const auto found = all.failing.find(device);
  if (found == all.failing.end() || found->second.first-- > 0) return CUDA_SUCCESS;
  const CUresult code = found->second.second;
  all.failing.erase(found);
  return code;
}
}  // namespace

int early_launches() {
  return Streams::instance().early;
}

int capability() {
  return fake::value_of(fake::gpus().capabilities, fake::current(), 90);
}

CUresult launch(CUstream handle, Kernel kernel, bool early) {
  const CallsLock calls{Streams::instance().calls};
  Stream* const stream = stream_of(handle);
  // Kernels run in primary contexts, where they are loaded.
  if (stream == nullptr || stream->device != fake::current_context()) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (kernel.blocks == 0 || kernel.lanes == 0 || kernel.lanes > 1024) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult code = failure_of(stream->device); code != CUDA_SUCCESS) return code;
  if (stream->capture) return stream->capture->add_kernel(*stream, std::move(kernel), early);
  Queue& queue = Queue::instance();
  queue.set_places(stream->device, places_of(stream->device));
  auto node = std::make_shared<Node>();
  node->kernel = std::move(kernel);
  node->device = stream->device;
  if (early && stream->launch) {
    queue.order_early(stream->launch, node);
    ++Streams::instance().early;
  } else {
    queue.order(stream->last, node);
  }
  stream->last = stream->launch = node;
  queue.submit(node);
  return CUDA_SUCCESS;
}

void add_streams(detail::CudaDriver& cuda) {
  cuda.memcpy_async = copy;
  cuda.memset_async = clear;
  cuda.stream_create = make_stream;
  cuda.stream_destroy = destroy_stream;
  cuda.stream_synchronize = synchronize;
  cuda.stream_wait_event = await;
  cuda.stream_get_ctx = [](CUstream handle, CUcontext* context) {
    Stream* const stream = stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // as the number of a stream
    *context = fake::context_of(stream->device);
    return CUDA_SUCCESS;
  };
  cuda.stream_get_id = [](CUstream handle, unsigned long long* number) {
    Stream* const stream = stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // as seen with CUDA 13.0
    *number = stream->number;
    return CUDA_SUCCESS;
  };
  cuda.event_create = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(new Event);
    return CUDA_SUCCESS;
  };
  cuda.event_destroy = [](CUevent handle) {
    delete reinterpret_cast<Event*>(handle);
    return CUDA_SUCCESS;
  };
  cuda.event_record = record;
  cuda.event_query = query;
  cuda.event_elapsed_time = [](float* ms, CUevent begun, CUevent ended) {
    const auto span = event_of(ended).times->at - event_of(begun).times->at;
    *ms = std::chrono::duration<float, std::milli>(span).count();
    return CUDA_SUCCESS;
  };
}

}  // namespace ccl::test::played
