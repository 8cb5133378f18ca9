#include <ccl/comm/stream.hpp>
#include <ccl/detail/runtime/call_sequencer.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/exceptions.hpp"
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
  std::unique_ptr<detail::HostCall> first{};        // the queue, in order
  std::unique_ptr<detail::HostCall>* end = &first;  // where the next call goes
  bool busy = false, stop = false;
  Result<void> failure;
  int process = detail::forks_before();  // the process that has the thread
  std::thread thread;

  void run();
  std::unique_ptr<detail::HostCall> pop();
  std::size_t calls() const;  // that have not run, with the one that runs
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

void HostStream::push(std::unique_ptr<detail::HostCall> call) noexcept {
  State& of = *state_;
  if (detail::forks_before() != of.process) return;  // `synchronize` reports it
  {
    const std::lock_guard lock{of.mutex};
    std::unique_ptr<detail::HostCall>* const next = &call->next;
    *of.end = std::move(call);
    of.end = next;
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
  if (std::isnan(limit_s)) {
    return fail(Errc::invalid_argument,
                "the limit of a stream's synchronize is not a number; give seconds, or 0 for none");
  }
  constexpr double no_limit_s = 1e9;  // above it, the clock's count of nanoseconds may overflow
  std::unique_lock lock{of.mutex};
  const auto is_idle = [&of] { return of.first == nullptr && !of.busy; };
  if (limit_s <= 0 || limit_s > no_limit_s) {
    of.idle.wait(lock, is_idle);
  } else if (!of.idle.wait_for(lock, std::chrono::duration<double>(limit_s), is_idle)) {
    return fail(
        Errc::timed_out,
        fmt::format("{} calls on the stream have not run within {} s (the first of them has "
                    "begun and does not end); abort its communicator, or wait longer",
                    of.calls(), limit_s));
  }
  Result<void> failure = std::move(of.failure);
  of.failure = {};
  return failure;
}

std::unique_ptr<detail::HostCall> HostStream::State::pop() {
  auto call = std::exchange(first, std::move(first->next));
  if (first == nullptr) end = &first;
  return call;
}

std::size_t HostStream::State::calls() const {
  std::size_t count = busy ? 1 : 0;
  for (const detail::HostCall* call = first.get(); call != nullptr; call = call->next.get())
    ++count;
  return count;
}

void HostStream::State::run() {
  on_stream = true;
  std::unique_lock lock{mutex};
  for (;;) {
    wake.wait(lock, [this] { return stop || first != nullptr; });
    if (first == nullptr) return;
    auto call = pop();
    busy = true;
    lock.unlock();
    Result<void> result = detail::without_exceptions([&call] { return call->run(); });
    call = nullptr;  // the destructor of a captured object may queue more
    lock.lock();
    busy = false;
    if (!result && failure) failure = std::move(result);
    if (first == nullptr) idle.notify_all();
  }
}

}  // namespace ccl
