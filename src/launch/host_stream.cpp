#include <ccl/comm/stream.hpp>
#include <ccl/detail/runtime/call_sequencer.hpp>

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <queue>
#include <thread>

#include "base/forks.hpp"
#include "base/thread.hpp"

namespace ccl {
namespace {
thread_local bool on_stream = false;
}  // namespace
bool detail::on_host_stream() noexcept {
  return on_stream;
}

struct HostStream::State {
  std::mutex mutex;
  std::condition_variable wake, idle;
  std::queue<std::unique_ptr<Call>> queue;
  bool busy = false, stop = false;
  Result<void> failure;
  int process = detail::forks_before();  // the process that has the thread
  std::thread thread;

  void run();
};

HostStream::HostStream() : state_{std::make_unique<State>()} {
  state_->thread =
      detail::own_thread("a host stream", [state = state_.get()] { state->run(); }).value();
}

HostStream::~HostStream() {
  State& of = *state_;
  if (detail::forks_before() != of.process) {
    // A forked child has no such thread, so it does not touch the state. The thread may have held
    // the mutex, and the queued calls are the parent's.
    static_cast<void>(state_.release());
    return;
  }
  {
    const std::lock_guard lock{of.mutex};
    of.stop = true;
  }
  of.wake.notify_all();
  of.thread.join();
}

void HostStream::push(std::unique_ptr<Call> call) {
  State& of = *state_;
  if (detail::forks_before() != of.process) return;  // `synchronize` reports it
  {
    const std::lock_guard lock{of.mutex};
    of.queue.push(std::move(call));
  }
  of.wake.notify_one();
}

Result<void> HostStream::synchronize(double limit_s) {
  State& of = *state_;
  if (detail::forks_before() != of.process) {
    return fail(Errc::invalid_usage,
                "the stream is another process's (this one was forked from it, which leaves its "
                "thread behind); make one after fork");
  }
  if (of.thread.get_id() == std::this_thread::get_id()) {
    return fail(Errc::invalid_usage,
                "a function that runs on a stream waits for that stream, which waits for it to "
                "return; synchronize from another thread");
  }
  std::unique_lock lock{of.mutex};
  const auto is_idle = [&of] { return of.queue.empty() && !of.busy; };
  if (limit_s <= 0) {
    of.idle.wait(lock, is_idle);
  } else if (!of.idle.wait_for(lock, std::chrono::duration<double>(limit_s), is_idle)) {
    return fail(
        Errc::timed_out,
        fmt::format("{} calls on the stream have not run within {} s (the first of them has "
                    "begun and does not end); abort its communicator, or wait longer",
                    of.queue.size() + std::size_t(of.busy), limit_s));
  }
  Result<void> failure = std::move(of.failure);
  of.failure = {};
  return failure;
}

void HostStream::State::run() {
  on_stream = true;
  std::unique_lock lock{mutex};
  for (;;) {
    wake.wait(lock, [this] { return stop || !queue.empty(); });
    if (queue.empty()) return;
    auto call = std::move(queue.front());
    queue.pop();
    busy = true;
    lock.unlock();
    Result<void> result = call->run();
    call = nullptr;  // the destructor of a captured object may queue more
    lock.lock();
    busy = false;
    if (!result && failure) failure = std::move(result);
    if (queue.empty()) idle.notify_all();
  }
}

}  // namespace ccl
