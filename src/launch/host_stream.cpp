#include <ccl/comm/stream.hpp>
#include <ccl/detail/runtime/call_sequencer.hpp>

#include <new>

#include "base/forks.hpp"
#include "base/thread.hpp"

namespace ccl {
namespace {
thread_local bool on_stream = false;
}
bool detail::on_host_stream() noexcept {
  return on_stream;
}

HostStream::HostStream()
    : process_{detail::forks_before()}, thread_{detail::own_thread("a host stream", [this] {
                                                  run();
                                                }).value()} {}

HostStream::~HostStream() {
  if (detail::forks_before() != process_) {
    // The thread did not come along: it may hold the mutex and wait for `wake_` for ever, and what
    // is queued is the parent's. Left alone, not destroyed.
    new (&mutex_) std::mutex;
    new (&wake_) std::condition_variable;
    new (&idle_) std::condition_variable;
    new (&queue_) std::queue<std::function<Result<void>()>>;
    new (&failure_) Result<void>;
    new (&thread_) std::thread;
    return;
  }
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void HostStream::enqueue(std::function<Result<void>()> call) {
  if (detail::forks_before() != process_) return;  // `synchronize` says so
  {
    const std::lock_guard lock{mutex_};
    queue_.push(std::move(call));
  }
  wake_.notify_one();
}

Result<void> HostStream::synchronize() {
  if (detail::forks_before() != process_) {
    return fail(Errc::invalid_usage,
                "the stream is another process's (this one was forked from it, which leaves its "
                "thread behind); make one after fork");
  }
  if (thread_.get_id() == std::this_thread::get_id()) {
    return fail(Errc::invalid_usage,
                "a function that runs on a stream waits for that stream, which waits for it to "
                "return; synchronize from another thread");
  }
  std::unique_lock lock{mutex_};
  idle_.wait(lock, [this] { return queue_.empty() && !busy_; });
  Result<void> failure = std::move(failure_);
  failure_ = {};
  return failure;
}

void HostStream::run() {
  on_stream = true;
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto call = std::move(queue_.front());
    queue_.pop();
    busy_ = true;
    lock.unlock();
    Result<void> result = call();
    call = nullptr;  // the end of what it held may queue more
    lock.lock();
    busy_ = false;
    if (!result && failure_) failure_ = std::move(result);
    if (queue_.empty()) idle_.notify_all();
  }
}

}  // namespace ccl
