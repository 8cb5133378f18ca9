#include "gpu/order/order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

namespace ccl::detail {
namespace {

/// True for the legacy default stream. It cannot be captured, and must not be queried while another
/// stream is.
bool is_legacy(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY;
}

/// Makes the GPU's context current if `stream` is a default stream, because such a handle is a
/// stream of the current context.
class ContextOf {
 public:
  ContextOf(const Gpu& gpu, CUstream stream) {
    if (is_legacy(stream) || stream == CU_STREAM_PER_THREAD) current_.emplace(gpu);
  }

 private:
  std::optional<Gpu::Current> current_;
};

/// Lets this thread make calls that a capture of another stream in global mode forbids.
class Relaxed {
 public:
  explicit Relaxed(const CudaDriver& driver) : driver_{driver} {
    (void)driver_.thread_exchange_capture_mode(&mode_);
  }
  ~Relaxed() { (void)driver_.thread_exchange_capture_mode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  const CudaDriver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace

GpuOrder::~GpuOrder() {
  if (place_) residency_->leave(*place_);
  const Gpu::Current current{*gpu_};
  for (const Retired& r : retired_) {
    if (r.event != nullptr) (void)gpu_->driver().event_destroy(r.event);
  }
}

Result<void> GpuOrder::make_event() {
  if (turn_ != nullptr) return {};
  const Gpu::Current current{*gpu_};
  const std::lock_guard lock{retired_mutex_};
  CUevent made = nullptr;
  CCL_CHECK(
      cuda_check(gpu_->driver().event_create(&made, CU_EVENT_DISABLE_TIMING), "make an event"));
  owns_turn_ = std::shared_ptr<void>{made, [gpu = gpu_](void* event) {
                                       const Gpu::Current in_context{*gpu};
                                       (void)gpu->driver().event_destroy(CUevent(event));
                                     }};
  turn_ = made;
  return {};
}

Result<unsigned long long> GpuOrder::number_of(CUstream stream) const {
  if (is_legacy(stream)) return legacy;
  unsigned long long number = 0;
  CCL_CHECK(cuda_check(gpu_->driver().stream_get_id(stream, &number), "get the stream's number"));
  return number;
}

Result<void> GpuOrder::check_device(CUstream stream) const {
  if (is_legacy(stream) || stream == CU_STREAM_PER_THREAD) return {};
  const CudaDriver& cuda = gpu_->driver();
  CUcontext context = nullptr;
  CCL_CHECK(cuda_check(cuda.stream_get_ctx(stream, &context), "get the stream's context"));
  CCL_CHECK(check_device_of(context));
  return context == gpu_->context() ? Result<void>{} : check_marks(stream);
}

Result<void> GpuOrder::check_marks(CUstream stream) const {
  const CudaDriver& cuda = gpu_->driver();
  const Gpu::Current in_context{*gpu_};
  CUevent mark = nullptr;
  CCL_CHECK(cuda_check(cuda.event_create(&mark, CU_EVENT_DISABLE_TIMING), "make an event"));
  const CUresult marked = cuda.event_record(mark, stream);
  (void)cuda.event_destroy(mark);
  const auto checked = cuda_check(marked, "mark work of the stream");
  if (marked != CUDA_ERROR_INVALID_HANDLE) return checked;
  Error error = checked.error();
  error.code = Errc::invalid_argument;
  error.what += "; give a stream of the GPU's primary context, as cudaStreamCreate makes";
  return fail(std::move(error));
}

Result<void> GpuOrder::check_device_of(CUcontext context) const {
  if (context == gpu_->context()) return {};
  const CudaDriver& cuda = gpu_->driver();
  CUdevice device = -1;
  CCL_CHECK(cuda_check(cuda.ctx_push_current(context), "use the stream's context"));
  const CUresult got = cuda.ctx_get_device(&device);
  (void)cuda.ctx_pop_current(&context);
  CCL_CHECK(cuda_check(got, "get the stream's device"));
  if (device == gpu_->device()) return {};
  return fail(Errc::invalid_argument,
              fmt::format("the stream belongs to CUDA device {} and the communicator to device {}; "
                          "give a stream that was made while device {} was current",
                          device, gpu_->device(), gpu_->device()));
}

Result<void> GpuOrder::join(const Residency::Shape& shape) {
  CCL_CHECK(make_event());
  place_ = residency_->join(gpu_, shape, turn_, owns_turn_);
  return {};
}

void GpuOrder::follow(GpuOrder& leader) {
  const std::lock_guard lock{mutex_};
  if (place_) residency_->leave(*place_);
  place_.reset();
  leader_.store(&leader, std::memory_order_release);
  if (leader.place_) leader.residency_->add_level(*leader.place_, gpu_);
}

LaunchShare* GpuOrder::share() {
  if (GpuOrder* const leader = leader_.load(std::memory_order_acquire)) return leader->share();
  return place_ ? &place_->share : nullptr;
}

std::optional<Residency::Shortage> GpuOrder::shortage() const {
  return residency_->shortage();  // of the GPU, also for a level
}

/// Lets the launch follow those of other communicators that do not fit beside it.
Result<void> GpuOrder::take_place(CUstream stream, cuuint64_t capture) {
  capture_number_ = capture;
  if (!place_) return {};
  // Only this order changes that, under its lock.
  if (capture == 0 && place_->graphs && graphs_are_gone()) {
    residency_->forget(*place_, [](cuuint64_t) { return true; });
  }
  Residency::LaunchWaits waits;
  CCL_CHECK(residency_->begin(
      *place_, capture, [this] { return graphs_are_gone() && idle(); }, waits));
  if (waits.outside.empty() && waits.inside.empty()) return {};
  return wait_for_others(stream, capture, std::move(waits));
}

/// Releases the lock of all communicators first: the calls of the driver may block until the GPU
/// has room in its queue, and what others launch or abort may be what makes room.
Result<void> GpuOrder::wait_for_others(CUstream stream, cuuint64_t capture,
                                       Residency::LaunchWaits waits) {
  std::vector<std::pair<CUevent, std::shared_ptr<void>>> events;
  for (const Residency::Member* other : waits.outside) {
    events.emplace_back(other->ended, other->owns_ended);
  }
  std::vector<std::vector<CUgraphNode>> nodes;
  for (const Residency::Member* other : waits.inside) nodes.push_back(other->ends.at(capture));
  waits.lock.unlock();
  const CudaDriver& cuda = gpu_->driver();
  for (const auto& [event, owner] : events) {
    if (capture != 0 && owner) CCL_CHECK(tie(owner));  // replays wait for it
    CCL_CHECK(cuda_check(
        cuda.stream_wait_event(stream, event,
                               capture != 0 ? CU_EVENT_WAIT_EXTERNAL : CU_EVENT_WAIT_DEFAULT),
        "wait for another communicator's launch"));
  }
  for (std::vector<CUgraphNode>& ends : nodes) {
    CCL_CHECK(cuda_check(
        cuda.stream_update_capture_dependencies(stream, ends.data(), nullptr, ends.size(),
                                                CU_STREAM_ADD_CAPTURE_DEPENDENCIES),
        "order the collectives of two communicators in a graph"));
  }
  return {};
}

void GpuOrder::give_place_back() {
  if (place_) residency_->end(*place_);
}

Result<void> GpuOrder::before(CUstream stream, const Keep& keep) {
  mutex_.lock();
  if (depth_ == 0) use_context();
  auto done = depth_ == 0 ? enter(stream, keep) : capture_ != nullptr ? tie(keep) : Result<void>{};
  if (!done) {
    if (depth_ == 0) {
      give_place_back();
      restore_context();
    }
    mutex_.unlock();
    return done;
  }
  if (++depth_ == 1) launching_ = true;
  return {};
}

Result<void> GpuOrder::after(CUstream stream) {
  const EndTurn end{*this};
  return --depth_ == 0 ? leave(stream) : Result<void>{};
}

void GpuOrder::give_up() {
  const EndTurn end{*this};
  --depth_;
}

GpuOrder::EndTurn::~EndTurn() {
  if (order.depth_ == 0) {
    order.launching_ = false;
    order.give_place_back();
    order.restore_context();
  }
  order.mutex_.unlock();
}

/// Makes the GPU's context current for the launch. To choose the device by the runtime, and to
/// choose the thread's own again, would make a context on that one, too.
void GpuOrder::use_context() {
  const CudaDriver& cuda = gpu_->driver();
  CUcontext current = nullptr;
  const bool known = cuda.ctx_get_current(&current) == CUDA_SUCCESS;
  if (known && current == gpu_->context()) return;
  pushed_ = cuda.ctx_push_current(gpu_->context()) == CUDA_SUCCESS;
}

void GpuOrder::restore_context() {
  CUcontext popped = nullptr;
  if (std::exchange(pushed_, false)) (void)gpu_->driver().ctx_pop_current(&popped);
}

bool GpuOrder::captures(CUstream stream) const {
  if (is_legacy(stream)) return false;
  const ContextOf current{*gpu_, stream};
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  (void)gpu_->driver().stream_is_capturing(stream, &status);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Result<void> GpuOrder::enter(CUstream stream, const Keep& keep) {
  const CudaDriver& cuda = gpu_->driver();
  const ContextOf current{*gpu_, stream};
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!is_legacy(stream)) {
    CCL_CHECK(cuda_check(cuda.stream_is_capturing(stream, &status),
                         "ask whether the stream is being captured"));
  }
  capture_ = nullptr;
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return fail(Errc::invalid_usage,
                "the capture of the stream has failed before this call (cudaStreamEndCapture says "
                "so, too); end it and begin anew");
  }
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    CCL_TRY(const cuuint64_t id, note_capture(stream));
    CCL_CHECK(tie(keep));
    CCL_CHECK(take_place(stream, id));
    return enter_graph(stream);
  }
  CCL_TRY(number_, number_of(stream));
  if (number_ != checked_) {
    const Relaxed relaxed{cuda};
    CCL_CHECK(check_device(stream));
    checked_ = number_;
  }
  CCL_CHECK(take_place(stream, 0));
  const bool graphs = graphs_;
  graphs_ = graphs && !any_graph_.expired();  // this launch still follows the last replay
  if (!graphs && (!launched_ || number_ == last_)) return {};
  return cuda_check(cuda.stream_wait_event(stream, turn_, CU_EVENT_WAIT_DEFAULT),
                    "wait for the launch before");
}

Result<void> GpuOrder::leave(CUstream stream) {
  const ContextOf current{*gpu_, stream};
  if (capture_ != nullptr) return leave_graph(stream);
  if (turn_ == nullptr) CCL_CHECK(make_event());
  CCL_CHECK(cuda_check(gpu_->driver().event_record(turn_, stream), "mark the launch"));
  last_ = number_;
  launched_ = true;
  if (unmarked_.load(std::memory_order_relaxed)) mark_retired(stream);
  return {};
}

void GpuOrder::mark_retired(CUstream stream) {
  const CudaDriver& cuda = gpu_->driver();
  const Gpu::Current current{*gpu_};
  const std::lock_guard lock{retired_mutex_};
  unmarked_.store(false, std::memory_order_relaxed);
  for (Retired& r : retired_) {
    if (r.event != nullptr) continue;
    if (cuda.event_create(&r.event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
        cuda.event_record(r.event, stream) == CUDA_SUCCESS) {
      continue;
    }
    if (r.event != nullptr) (void)cuda.event_destroy(r.event);
    r.event = nullptr;  // destroyed when nothing runs
  }
}

void GpuOrder::retire(std::shared_ptr<void> used) {
  {
    const std::lock_guard lock{retired_mutex_};
    retired_.push_back({nullptr, std::move(used)});
    unmarked_.store(true, std::memory_order_relaxed);
  }
  (void)release_retired();
}

bool GpuOrder::release_retired() {
  const CudaDriver& cuda = gpu_->driver();
  std::vector<std::shared_ptr<void>> gone;  // destroyed without the lock
  const std::lock_guard lock{retired_mutex_};
  if (retired_.empty()) return false;
  const Gpu::Current current{*gpu_};
  // A launch that another thread makes may run already, and has recorded no event yet.
  const bool idle = !launching_ && (turn_ == nullptr || cuda.event_query(turn_) == CUDA_SUCCESS);
  std::erase_if(retired_, [&](Retired& r) {
    const bool unused = idle || (r.event != nullptr && cuda.event_query(r.event) == CUDA_SUCCESS);
    if (!unused) return false;
    if (r.event != nullptr) (void)cuda.event_destroy(r.event);
    gone.push_back(std::move(r.used));
    return true;
  });
  return !retired_.empty();
}

bool GpuOrder::idle() {
  const Gpu::Current current{*gpu_};
  const std::lock_guard lock{retired_mutex_};
  return turn_ == nullptr || gpu_->driver().event_query(turn_) != CUDA_ERROR_NOT_READY;
}

bool GpuOrder::drain(double limit_s) {
  using Clock = std::chrono::steady_clock;
  const Gpu::Current current{*gpu_};
  const CudaDriver& cuda = gpu_->driver();
  const std::scoped_lock lock{mutex_, retired_mutex_};
  const auto begin = Clock::now();
  auto pause = std::chrono::microseconds{20};
  while (turn_ != nullptr && cuda.event_query(turn_) == CUDA_ERROR_NOT_READY) {
    if (Clock::now() - begin > std::chrono::duration<double>(limit_s)) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds{1000});
  }
  for (const Retired& r : retired_) {
    if (r.event != nullptr) (void)cuda.event_destroy(r.event);
  }
  retired_.clear();
  return true;
}

}  // namespace ccl::detail
