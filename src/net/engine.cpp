#include "net/engine.hpp"

#include <ccl/comm/log.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <new>
#include <thread>
#include <utility>

#include "base/exceptions.hpp"
#include "base/fork_mutex.hpp"
#include "base/thread.hpp"
#include "net/socket.hpp"
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

namespace ccl::detail::net {

Engine& Engine::get() {
  detail::stay_loaded();  // no caller holds a lock at the first call
  return made();
}

// Initialized when the library is loaded: see `forks_before`.
const Engine& Engine::early_ = made();

Engine& Engine::made() {
  // It is never destroyed, because its thread may outlive static objects. It needs no memory, so
  // that functions which end something can rely on it.
  alignas(Engine) static std::byte place[sizeof(Engine)];
  static Engine* const engine = [] {
    auto* e = new (place) Engine;
    // A fork waits for the engine's mutex first: its thread takes tables of the process under it.
    (void)ForkMutex::register_for_forks();
    ::pthread_atfork(before_fork, after_fork, in_child);
    return e;
  }();
  return *engine;
}

// A starting thread holds locks of the C library and of sanitizers. In a forked child they would
// stay locked. `start` therefore holds the mutex until the thread runs.
void Engine::before_fork() {
  get().mutex_.lock();
}
void Engine::after_fork() {
  get().mutex_.unlock();
}
void Engine::in_child() {
  // A child has no engine thread, and the sockets belong to the parent.
  Engine& e = get();
  for (auto& [id, handler] : e.handlers_) {
    handler->forget();
    handler->id_ = 0;
  }
  // They leak, because their destructors may take the mutex or send to the parent's peers. Without
  // an allocation, which could fail here.
  struct Parents {
    std::map<std::uint64_t, std::shared_ptr<Handler>> handlers;
    std::list<Ticker> tickers;
    std::vector<std::shared_ptr<Handler>> dirty;
    std::thread thread;
  };
  alignas(Parents) static std::byte left[sizeof(Parents)];
  new (left) Parents{std::move(e.handlers_), std::move(e.tickers_), std::move(e.dirty_),
                     std::move(e.thread_)};
  e.handlers_.clear();
  e.tickers_.clear();
  e.dirty_.clear();
  if (e.running_) {
    ::close(e.epoll_);
    ::close(e.event_);
  }
  e.running_ = e.in_round_ = false;
  e.mutex_.unlock();
}

Result<void> Engine::start() {
  if (running_) return {};
  Fd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  Fd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!epoll || !event) return fail(system_error("cannot create an epoll set", errno));
  epoll_event e{};
  e.events = EPOLLIN;
  ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &e);
  CCL_TRY(thread_, detail::own_thread("the network", [this, ep = epoll.get()] {
            born_.release();
            loop(ep);
          }));
  born_.acquire();
  epoll_ = epoll.release();
  event_ = event.release();
  running_ = true;
  return {};
}

void Engine::stop() {
  thread_.detach();  // it is the calling thread, which ends next
  ::close(epoll_);
  ::close(event_);
  running_ = false;
}

void Engine::wake() const {
  const std::uint64_t one = 1;
  if (running_ && ::write(event_, &one, sizeof one) < 0) return;  // full: a wake-up is pending
}

Result<void> Engine::add(std::shared_ptr<Handler> handler, std::uint32_t events) {
  CCL_CHECK(start());
  epoll_event e{};
  e.events = events;
  e.data.u64 = ++last_id_;
  const auto place = handlers_.emplace(last_id_, handler).first;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, handler->fd(), &e) != 0) {
    const int code = errno;
    handlers_.erase(place);
    wake();  // the thread ends if it has no handlers
    return fail(system_error("cannot watch a socket", code));
  }
  handler->id_ = last_id_;
  return {};
}

void Engine::watch(const Handler& handler, std::uint32_t events) {
  if (handler.id_ == 0) return;
  epoll_event e{};
  e.events = events;
  e.data.u64 = handler.id_;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, handler.fd(), &e);
}

void Engine::remove(Handler& handler) {
  if (handler.id_ == 0) return;
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, handler.fd(), nullptr);
  handlers_.erase(std::exchange(handler.id_, 0));
  if (handlers_.empty()) wake();
}

Result<void> Engine::add_ticker(std::function<bool()> tick, std::chrono::milliseconds period) {
  CCL_CHECK(start());
  tickers_.push_back({std::move(tick), period, Clock::now() + period});
  wake();
  return {};
}

void Engine::tick_soon() {
  for (Ticker& ticker : tickers_) ticker.due = {};
  wake();
}

void Engine::flush_soon(const std::shared_ptr<Handler>& handler) {
  if (in_round_) {
    dirty_.push_back(handler);
  } else {
    handler->flush();
  }
}

void Engine::flush_later(const std::shared_ptr<Handler>& handler) {
  dirty_.push_back(handler);
  wake();
}

template <class Call>
void Engine::call(Handler& handler, Call&& call) noexcept {
  try {
    try {
      call();
    } catch (...) {
      const Error error = error_of_exception();
      log_warn(LogPart::net, "a connection ends ({})", error.what);
      handler.broke(error.os_code != 0 ? error.os_code : ENOMEM);
    }
  } catch (...) {  // nor is there memory to report it
    lose_log_line();
    remove(handler);
    handler.forget();
  }
}

void Engine::serve(const epoll_event& event) {
  const std::uint64_t id = event.data.u64;  // a copy: the struct is packed
  if (id == 0) {
    std::uint64_t count = 0;
    if (::read(event_, &count, sizeof count) < 0) return;  // another round has read it
    return;
  }
  const auto it = handlers_.find(id);
  if (it == handlers_.end()) return;  // removed earlier in this round
  const auto keep = it->second;
  call(*keep, [&] { keep->ready(event.events); });
}

void Engine::tick() {
  std::list<Ticker> tickers;
  tickers.swap(tickers_);  // a ticker may add one
  for (auto at = tickers.begin(); at != tickers.end();) {
    const auto ticker = at++;
    bool again = true;
    if (ticker->due <= Clock::now()) {
      ticker->due = Clock::now() + ticker->period;
      try {
        again = ticker->tick();
      } catch (...) {  // without memory, say; it is called again
        lose_log_line();
      }
    }
    if (again) tickers_.splice(tickers_.end(), tickers, ticker);
  }
}

/// Time until the first ticker is due; -1: there is none.
int Engine::until_tick_ms() const {
  if (tickers_.empty()) return -1;
  const auto before = [](const Ticker& a, const Ticker& b) { return a.due < b.due; };
  const auto due = std::min_element(tickers_.begin(), tickers_.end(), before)->due;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now());
  return std::max(1, int(left.count()));
}

void Engine::flush_all() {
  while (!dirty_.empty()) {
    std::vector<std::shared_ptr<Handler>> dirty;
    dirty.swap(dirty_);
    for (const auto& handler : dirty) call(*handler, [&] { handler->flush(); });
  }
}

namespace {
thread_local bool serves = false;
}  // namespace

bool Engine::in_own_thread() {
  return serves;
}

void Engine::loop(int epoll) {
  serves = true;
  epoll_event ready[64];
  Lock lock{mutex_};
  callback_lock_ = &lock;
  for (;;) {
    if (handlers_.empty() && tickers_.empty()) return stop();
    const int wait_ms = until_tick_ms();
    lock.unlock();
    const int n = ::epoll_wait(epoll, ready, 64, wait_ms);
    lock.lock();
    in_round_ = true;
    for (int i = 0; i < n; ++i) serve(ready[i]);
    if (!tickers_.empty()) tick();
    flush_all();
    in_round_ = false;
  }
}

}  // namespace ccl::detail::net
