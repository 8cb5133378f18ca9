#include <ccl/host_stream.hpp>
#include <ccl/turns.hpp>

#include "own_thread.hpp"

namespace ccl {
namespace {
thread_local bool on_stream = false;
}
bool detail::on_host_stream() noexcept {
  return on_stream;
}

HostStream::HostStream()
    : thread_{detail::own_thread("a host stream", [this] { run(); }).value()} {}

HostStream::~HostStream() {
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void HostStream::enqueue(std::function<Result<void>()> call) {
  {
    const std::lock_guard lock{mutex_};
    queue_.push(std::move(call));
  }
  wake_.notify_one();
}

Result<void> HostStream::synchronize() {
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
