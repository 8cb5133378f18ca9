#include <ccl/host_stream.hpp>

namespace ccl {

HostStream::HostStream() : thread_{[this] { run(); }} {}

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
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto call = std::move(queue_.front());
    queue_.pop();
    busy_ = true;
    lock.unlock();
    Result<void> result = call();
    lock.lock();
    busy_ = false;
    if (!result && failure_) failure_ = std::move(result);
    if (queue_.empty()) idle_.notify_all();
  }
}

}  // namespace ccl
