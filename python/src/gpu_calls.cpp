#include "gpu_calls.hpp"

#include <ccl/types/result.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "blocking.hpp"
#include "gpu/driver.hpp"
#include "interpreter_lock.hpp"
#include <nanobind/stl/pair.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace ccl::python {
namespace {

using Address = std::uintptr_t;

/// Arguments of a collective of NCCL's interface. `form` says which of them its function takes.
struct LibraryCall {
  enum Form : int { reduce, rooted_reduce, move, rooted_move };
  Address function = 0;
  int form = reduce;
  Address comm = 0, send = 0, recv = 0;
  std::size_t count = 0;
  int type = 0, op = 0, root = 0;

  /// Returns a number of `ncclResult_t`. `stream`: a CUstream.
  int operator()(Address stream) const {
    const auto from = reinterpret_cast<const void*>(send);
    const auto to = reinterpret_cast<void*>(recv);
    const auto of = reinterpret_cast<void*>(comm);
    const auto on = reinterpret_cast<void*>(stream);
    const auto call = [&]<class... T>(T... more) {
      using Function = int (*)(const void*, void*, std::size_t, int, T..., void*, void*);
      return reinterpret_cast<Function>(function)(from, to, count, type, more..., of, on);
    };
    switch (form) {
      case reduce:
        return call(op);
      case rooted_reduce:
        return call(op, root);
      case move:
        return call();
      default:
        return call(root);
    }
  }
};

/// True if a result of the library is no error: success, or a call that is in progress.
bool is_good(int result) {
  return result == 0 || result == 7;
}

void check(CUresult code, const char* what) {
  if (code != CUDA_SUCCESS) raise(detail::cuda_error(code, what));
}

/// Context of a stream, and its events that no mark has. The interpreter's lock guards them.
class Events {
 public:
  explicit Events(const detail::CudaDriver& driver, CUstream stream) : driver_{driver} {
    check(driver.stream_get_ctx(stream, &context_), "find the context of a stream");
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    for (const CUevent event : free_) (void)driver_.event_destroy(event);
  }

  const detail::CudaDriver& driver() const { return driver_; }
  CUevent take() {
    if (free_.empty()) {
      free_.reserve(++made_);  // so that `give` needs no memory
      CUevent event = nullptr;
      const Current current{*this};
      check(driver_.event_create(&event, CU_EVENT_DISABLE_TIMING), "create an event");
      return event;
    }
    const CUevent event = free_.back();
    free_.pop_back();
    return event;
  }
  void give(CUevent event) { free_.push_back(event); }

  /// Makes the context that of this thread while it lives: the default stream is one of the current
  /// context.
  class Current {
   public:
    explicit Current(const Events& events) : driver_{events.driver_} {
      CUcontext now = nullptr;
      (void)driver_.ctx_get_current(&now);
      pushed_ = now != events.context_ && driver_.ctx_push_current(events.context_) == CUDA_SUCCESS;
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current() {
      CUcontext before = nullptr;
      if (pushed_) (void)driver_.ctx_pop_current(&before);
    }

   private:
    const detail::CudaDriver& driver_;
    bool pushed_;
  };

 private:
  const detail::CudaDriver& driver_;
  CUcontext context_ = nullptr;
  std::vector<CUevent> free_;
  std::size_t made_ = 0;
};

CUstream stream_at(Address at) {
  return reinterpret_cast<CUstream>(at);
}

/// Point in a stream: what had been queued there when the mark was made.
class Mark {
 public:
  explicit Mark(std::shared_ptr<Events> events)
      : events_{std::move(events)}, event_{events_->take()} {}
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  // A graph may hold what was captured, so another mark does not get its event.
  ~Mark() {
    if (captured_) {
      (void)events_->driver().event_destroy(event_);
    } else {
      events_->give(event_);
    }
  }

  /// Sets the point. Without the interpreter's lock, since the stream's queue may be full.
  CUresult record(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    (void)events_->driver().stream_is_capturing(stream, &status);
    captured_ = status != CU_STREAM_CAPTURE_STATUS_NONE;
    return events_->driver().event_record(event_, stream);
  }
  CUresult let_wait(CUstream stream) const {
    return events_->driver().stream_wait_event(stream, event_, 0);
  }
  bool captured() const { return captured_; }
  bool reached() const {
    const CUresult code = events_->driver().event_query(event_);
    if (code == CUDA_ERROR_NOT_READY) return false;
    check(code, "ask whether a call has ended");
    return true;
  }
  const Events& events() const { return *events_; }

 private:
  std::shared_ptr<Events> events_;
  CUevent event_;
  bool captured_ = false;
};

/// Stream of a group of ranks. Its calls run behind what the streams of their callers had been
/// given. Threads make its calls one at a time.
class SideStream {
 public:
  explicit SideStream(Address stream) : stream_{stream_at(stream)} {
    const auto driver = detail::cuda_driver();
    if (!driver) raise(driver.error());
    events_ = std::make_shared<Events>(**driver, stream_);
  }

  void follow(Address current) const {
    Mark begin{events_};
    const auto follows = [&] {
      const LockReleased unlocked;
      const Events::Current context{*events_};
      return follow(begin, current);
    }();
    check(follows, "let a stream wait for that of the caller");
  }
  /// Returns a mark of any stream, which Python is to own.
  Mark* mark(Address stream) const {
    auto made = std::make_unique<Mark>(events_);
    const auto recorded = [&] {
      const LockReleased unlocked;
      const Events::Current context{*events_};
      return made->record(stream_at(stream));
    }();
    check(recorded, "mark a point of a stream");
    return made.release();
  }
  /// Follows `current`, makes a call, and marks its end. Returns the result of the library, and the
  /// mark, which Python is to own, or null after an error.
  std::pair<int, Mark*> launch(const LibraryCall& call, Address current) const {
    Mark begin{events_};
    auto end = std::make_unique<Mark>(events_);
    int result = 0;
    const CUresult code = [&] {
      const LockReleased unlocked;
      const Events::Current context{*events_};
      if (const CUresult failed = follow(begin, current); failed != CUDA_SUCCESS) return failed;
      result = call(reinterpret_cast<Address>(stream_));
      return is_good(result) ? end->record(stream_) : CUDA_SUCCESS;
    }();
    check(code, "order a call behind the stream of the caller");
    return {result, is_good(result) ? end.release() : nullptr};
  }

 private:
  CUresult follow(Mark& begin, Address current) const {
    if (const CUresult code = begin.record(stream_at(current)); code != CUDA_SUCCESS) return code;
    return begin.let_wait(stream_);
  }

  CUstream stream_;
  std::shared_ptr<Events> events_;
};

}  // namespace

void bind_gpu_calls(nb::module_& m) {
  nb::class_<Mark>(m, "Mark")
      .def_prop_ro("captured", &Mark::captured)
      .def("reached", &Mark::reached)
      .def(
          "let_wait",
          [](const Mark& mark, Address stream) {
            const CUresult code = [&] {
              const LockReleased unlocked;
              const Events::Current context{mark.events()};
              return mark.let_wait(stream_at(stream));
            }();
            check(code, "let a stream wait for a call");
          },
          "stream"_a);
  nb::class_<SideStream>(m, "SideStream")
      .def(nb::init<Address>(), "stream"_a)
      .def(
          "follow", [](const SideStream& side, Address current) { side.follow(current); },
          "current"_a)
      .def("mark", &SideStream::mark, "stream"_a)
      .def(
          "launch",
          [](const SideStream& side, Address function, int form, Address comm, Address send,
             Address recv, std::size_t count, int type, int op, int root, Address current) {
            return side.launch({function, form, comm, send, recv, count, type, op, root}, current);
          },
          "function"_a, "form"_a, "comm"_a, "send"_a, "recv"_a, "count"_a, "type"_a, "op"_a,
          "root"_a, "current"_a);
  m.def(
      "ask",
      [](Address function, Address comm) {
        return reinterpret_cast<int (*)(void*)>(function)(reinterpret_cast<void*>(comm));
      },
      "function"_a, "comm"_a);
  m.def(
      "launch",
      [](Address function, int form, Address comm, Address send, Address recv, std::size_t count,
         int type, int op, int root, Address stream) {
        const LockReleased unlocked;
        return LibraryCall{function, form, comm, send, recv, count, type, op, root}(stream);
      },
      "function"_a, "form"_a, "comm"_a, "send"_a, "recv"_a, "count"_a, "type"_a, "op"_a, "root"_a,
      "stream"_a);
}

}  // namespace ccl::python
