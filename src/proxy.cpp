#include <ccl/proxy.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include "os_error.hpp"
#include "own_thread.hpp"
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace ccl {
namespace {
// Between two looks at whether helpers are still at it: ever longer while they are. Each look takes
// a core from a rank.
constexpr long helped_sleep_us = 500, longest_helped_sleep_us = 4000;
constexpr long dozed_sleep_us = 4000;  // while a helper blocks: it will hear of whatever comes
// Until then a helper polls: on hardware whatever it waits for comes sooner. Where the network is
// the kernel's work, and cores are few, a poll takes the core from what it waits for. Sockets are
// slower than a turn of all ranks on their cores, which is what sleepers were mostly late for.
constexpr double doze_after_us = 50, doze_on_sockets_after_us = 400;
constexpr double longest_doze_us = 1000, least_doze_us = 50, most_polled_us = 250;

/// A thread's wait: calls of `help` with hardly anything between them, none of which moved
/// anything.
struct Wait {
  std::chrono::steady_clock::time_point since{}, last{};
};
thread_local Wait wait;
constexpr auto same_wait = std::chrono::microseconds{100};
constexpr std::size_t few_tasks = 4;  // that cost less to try than to hear of
constexpr int idle_rounds = 32;       // without any movement, before the thread blocks
constexpr double last_rounds_s = 1;   // for tasks that are ending when the engine goes
// A polled task: a launch may take that long between two steps; a look costs some microseconds.
constexpr long eager_us = 300, rarest_look_us = 1000;

// Calls without a pause: they take so long on average, a pause counting as `most_call_ns` at most.
// What they post is put off, but not for longer than some of them take; so often the thread looks.
constexpr Word quick_call_ns = 30'000, most_call_ns = 500'000, calls_on_average = 8;
constexpr Word longest_put_off_ns = 60'000, late_ns = 100'000;
// After a guess that was wrong, about 45 quick calls have to pass before the next.
constexpr Word wrong_guess_ns = 10'000'000;
constexpr long guard_us = 100;
constexpr int idle_guards = 8;

/// How long to sleep between two looks at polled tasks, when nothing has moved for `quiet_us`.
long between_looks_us(long quiet_us) {
  return quiet_us < eager_us ? 0 : std::min(quiet_us / 8, rarest_look_us);
}
}  // namespace

ProxyEngine::~ProxyEngine() {
  further_.clear();
  stop_.store(true);
  wake();
  if (thread_.joinable()) thread_.join();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(last_rounds_s);
  const auto any_ending = [this] {
    for (const auto& task : tasks_) {
      if (task->ending()) return true;
    }
    return false;
  };
  while (any_ending() && std::chrono::steady_clock::now() < end) {
    if (!round()) sleep(true, 1000);
  }
  tasks_.clear();
  if (watch_ >= 0) ::close(watch_);
  if (bell_ >= 0) ::close(bell_);
}

Result<void> ProxyEngine::add(std::shared_ptr<ProxyTask> task) {
  const std::lock_guard lock{start_mutex_};
  if (bell_ < 0) {
    bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bell_ < 0) {
      const int os_code = errno;
      return fail(detail::os_error(
          Errc::system, fmt::format("cannot make an eventfd ({})", std::strerror(os_code)),
          os_code));
    }
  }
  acquire();
  if (watch_ < 0) watch_ = ::epoll_create1(EPOLL_CLOEXEC);  // without it, all tasks try
  watch(*task);
  tasks_.push_back(std::move(task));
  task_count_.store(int(tasks_.size()), std::memory_order_relaxed);
  release();
  if (thread_.joinable()) {
    wake();
    return {};
  }
  auto started = detail::own_thread("the proxy", [this] { run(); });
  if (!started) {
    acquire();
    tasks_.pop_back();
    task_count_.store(int(tasks_.size()), std::memory_order_relaxed);
    release();
    return fail(std::move(started).error());
  }
  thread_ = std::move(*started);
  return {};
}

ProxyEngine& ProxyEngine::further(int n) {
  const std::lock_guard lock{start_mutex_};
  while (int(further_.size()) <= n) further_.push_back(std::make_unique<ProxyEngine>());
  return *further_[std::size_t(n)];
}

void ProxyEngine::acquire() {
  while (!try_acquire()) ::sched_yield();  // rounds are short
}

void ProxyEngine::watch(ProxyTask& task) {
  const int fd = task.watched();
  if (fd < 0 || fd == task.heard.fd || watch_ < 0) return;
  task.heard.fd = fd;
  epoll_event event{EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {}};
  event.data.fd = fd;
  if (::epoll_ctl(watch_, EPOLL_CTL_ADD, fd, &event) != 0) return;
  if (by_fd_.size() <= std::size_t(fd)) by_fd_.resize(std::size_t(fd) + 1);
  by_fd_[std::size_t(fd)] = &task;
  task.heard.told = listening_;
  task.heard.readable = task.heard.writable = true;  // whoever is not is told so by a system call
}

/// What has become ready since the last time; who was ready then has not been asked in vain since.
void ProxyEngine::listen() {
  const bool many = tasks_.size() > few_tasks;
  if (many != listening_) {
    listening_ = many;
    for (const auto& task : tasks_) {
      if (task == nullptr) continue;
      ProxyHeard& heard = task->heard;
      heard.told = many && heard.fd >= 0 && std::size_t(heard.fd) < by_fd_.size() &&
                   by_fd_[std::size_t(heard.fd)] == task.get();
      heard.readable = heard.writable = true;
    }
  }
  if (!many || watch_ < 0) return;
  constexpr int most = 64;  // the others in the next round
  epoll_event events[most];
  const int count = ::epoll_wait(watch_, events, most, 0);
  for (int n = 0; n < count; ++n) {
    ProxyTask* const task = by_fd_[std::size_t(events[n].data.fd)];
    if (task == nullptr) continue;
    ProxyHeard& heard = task->heard;
    const auto is = events[n].events;
    heard.closed = heard.closed || (is & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    heard.readable = heard.readable || heard.closed || (is & EPOLLIN) != 0;
    heard.writable = heard.writable || heard.closed || (is & EPOLLOUT) != 0;
  }
}

bool ProxyEngine::round(bool left_over_only) {
  bool moved = false, ended = false;
  put_off_ns_.store(0, std::memory_order_relaxed);  // every task that has something has its turn
  const std::size_t count = tasks_.size();
  const auto turns = [&](auto&& has_turn) {
    for (std::size_t n = 0; n < count; ++n) {
      auto& task = tasks_[first_ + n < count ? first_ + n : first_ + n - count];
      if (task == nullptr || !has_turn(*task)) continue;
      switch (task->progress(moved_)) {
        case ProxyTask::Progress::none:
          break;
        case ProxyTask::Progress::some:
          moved = true;
          break;
        case ProxyTask::Progress::ended:
          std::replace(by_fd_.begin(), by_fd_.end(), task.get(), static_cast<ProxyTask*>(nullptr));
          task.reset();
          ended = true;
          break;
      }
      if (task != nullptr) watch(*task);
    }
  };
  if (left_over_only) {
    turns([](const ProxyTask& task) { return task.left_over; });
  } else {
    // A send takes long enough for something to come meanwhile, and says itself what has come.
    turns([](const ProxyTask& task) { return task.goes_first; });
    listen();
    turns([](const ProxyTask& task) { return !task.goes_first; });
  }
  first_ = first_ + 1 < count ? first_ + 1 : 0;
  if (ended) {
    std::erase(tasks_, nullptr);
    first_ = 0;
    task_count_.store(int(tasks_.size()), std::memory_order_relaxed);
  }
  if (moved) {
    steps_.store(moved_.steps, std::memory_order_relaxed);
    bytes_.store(moved_.bytes, std::memory_order_relaxed);
  }
  return moved;
}

bool ProxyEngine::help(bool looks_elsewhere) {
  if (task_count_.load(std::memory_order_relaxed) == 0 || !try_acquire()) return false;
  const bool moved = round();
  helped_.store(helped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const auto now = std::chrono::steady_clock::now();
  if (moved || now - wait.last > same_wait) wait.since = now;
  wait.last = now;
  const double waited_us = std::chrono::duration<double, std::micro>(now - wait.since).count();
  const auto on_sockets = [this] {
    return std::all_of(tasks_.begin(), tasks_.end(),
                       [](const auto& t) { return t->heard.fd >= 0; });
  };
  if (looks_elsewhere || waited_us < doze_after_us ||
      (waited_us < doze_on_sockets_after_us && on_sockets())) {
    release();
  } else {
    doze(waited_us);
    wait.last = std::chrono::steady_clock::now();
  }
  return moved;
}

void ProxyEngine::doze(double waited_us) {
  std::vector<pollfd> watched;
  bool stay = true;
  double limit_us = std::clamp(waited_us / 4, least_doze_us, longest_doze_us);
  for (const auto& task : tasks_) {
    if (task->arm()) stay = false;
    const ProxyInterest interest = task->interest();
    if (interest.pending) stay = false;
    if (interest.polled) limit_us = std::clamp(limit_us / 2, least_doze_us, most_polled_us);
    if (interest.fd >= 0 && interest.events != 0) {
      watched.push_back({interest.fd, interest.events, 0});
    }
  }
  if (stay) dozing_.fetch_add(1, std::memory_order_relaxed);
  release();
  if (!stay) return;
  const timespec limit{0, long(limit_us * 1000)};
  ::ppoll(watched.data(), nfds_t(watched.size()), &limit, nullptr);
  dozing_.fetch_sub(1, std::memory_order_relaxed);
}

void ProxyEngine::wake() {
  called_.store(true);  // before the look at `asleep_`; the thread does it the other way round
  if (asleep_.load()) ::eventfd_write(bell_, 1);
}

void ProxyEngine::wake_polled() {
  wake();
  const std::lock_guard lock{start_mutex_};
  for (const auto& engine : further_) {
    if (engine->polled_.load(std::memory_order_relaxed)) engine->wake();
  }
}

ProxyEngine::Rest ProxyEngine::rest() const {
  Rest rest;
  for (const auto& task : tasks_) {
    const ProxyInterest interest = task->interest();
    task->left_over =
        (interest.pending && !interest.for_helpers) || (interest.events & POLLOUT) != 0;
    rest.left_over = rest.left_over || task->left_over;
    rest.gathers = rest.gathers && (interest.gathers || !task->left_over);
    rest.polled = rest.polled || interest.polled;
  }
  return rest;
}

bool ProxyEngine::puts_off(const Rest& rest) {
  const Word now = HostMemory::now_ns();
  const Word took = std::min(now - last_call_ns_, most_call_ns);
  call_ns_ = call_ns_ - call_ns_ / calls_on_average + took / calls_on_average;
  last_call_ns_ = now;
  if (took > quick_call_ns || call_ns_ > quick_call_ns) return false;
  if (!rest.left_over || !rest.gathers || rest.polled) return false;
  const Word since = put_off_ns_.load(std::memory_order_relaxed);
  if (since == 0) put_off_ns_.store(now);
  return since == 0 || now - since < longest_put_off_ns;
}

/// Until someone calls or nothing has been put off for a while. True if there is something to do.
bool ProxyEngine::guard() {
  for (int idle = 0; idle < idle_guards && !stop_.load(std::memory_order_relaxed);) {
    if (sleep(false, guard_us)) return true;
    const Word since = put_off_ns_.load();
    idle = since == 0 ? idle + 1 : 0;
    if (since == 0 || HostMemory::now_ns() - since < late_ns || !try_acquire()) continue;
    round();
    call_ns_ = wrong_guess_ns;
    rounds_.store(rounds_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    release();
  }
  guarded_.store(false);  // before the look; who puts off does it the other way round
  return put_off_ns_.load() != 0;
}

void ProxyEngine::run() {
  Word seen = 0;  // rounds of helpers
  long helped_us = helped_sleep_us;
  int idle = 0;
  bool called = false, fresh = true;  // fresh: something has moved, or someone has called
  std::chrono::steady_clock::time_point quiet_since;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (!called && guarded_.load()) {
      called = guard();
      idle = 0;  // not to sleep for good while helpers rely on it
    }
    const Word helped = helped_.load(std::memory_order_relaxed);
    const bool dozing = dozing_.load(std::memory_order_relaxed) > 0;
    if ((helped != seen || dozing) && !called) {
      seen = helped;
      idle = 0;
      called = sleep(false, dozing ? dozed_sleep_us : helped_us);
      helped_us = std::min(2 * helped_us, longest_helped_sleep_us);
      continue;
    }
    helped_us = helped_sleep_us;
    fresh = fresh || called;
    called = false;
    bool moved = false;
    if (try_acquire()) {
      moved = round();
      rounds_.store(rounds_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      release();
    }
    if (moved) {
      idle = 0;
      fresh = true;
    } else if (++idle < idle_rounds) {
      ::sched_yield();
    } else {
      idle = 0;
      const auto now = std::chrono::steady_clock::now();
      if (std::exchange(fresh, false)) quiet_since = now;
      const auto quiet = std::chrono::duration_cast<std::chrono::microseconds>(now - quiet_since);
      const long pause_us = between_looks_us(long(quiet.count()));
      called = sleep(true, -1, pause_us);
      if (polled_ && pause_us > 0 && !called) idle = idle_rounds;  // one look, then the next sleep
    }
  }
}

/// Until someone calls, the time is over (-1: never), or, `for_tasks`, one of them can move. The
/// time is `polled_us` at most if one of them is polled. True if someone called.
bool ProxyEngine::sleep(bool for_tasks, long timeout_us, long polled_us) {
  std::vector<pollfd> watched{{bell_, POLLIN, 0}};
  asleep_.store(true);
  bool stay = !called_.load();
  if (for_tasks && stay) {
    bool polled = false;
    acquire();
    for (const auto& task : tasks_) {
      if (task->arm()) stay = false;
      const ProxyInterest interest = task->interest();
      if (interest.pending || (interest.polled && polled_us == 0)) stay = false;
      if (interest.polled && polled_us > 0) timeout_us = polled_us;
      polled = polled || interest.polled;
      if (interest.fd >= 0 && interest.events != 0) {
        watched.push_back({interest.fd, interest.events, 0});
      }
    }
    release();
    polled_.store(polled, std::memory_order_relaxed);
  }
  if (stay) {
    sleeps_.store(sleeps_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    const timespec limit{timeout_us / 1'000'000, timeout_us % 1'000'000 * 1000};
    ::ppoll(watched.data(), nfds_t(watched.size()), timeout_us < 0 ? nullptr : &limit, nullptr);
  }
  asleep_.store(false);
  if (watched[0].revents != 0) {
    eventfd_t rings = 0;
    ::eventfd_read(bell_, &rings);
  }
  return called_.exchange(false);
}

ProxyEngine::Helper::Helper(ProxyEngine& engine, bool looks_elsewhere)
    : engine_{engine}, before_{detail::idle_hook} {
  detail::idle_hook = {
      looks_elsewhere ? [](void* context) { return static_cast<ProxyEngine*>(context)->help(true); }
                      : [](void* context) { return static_cast<ProxyEngine*>(context)->help(); },
      &engine};
}

ProxyEngine::Helper::~Helper() {
  detail::idle_hook = before_;
  if (engine_.task_count_.load(std::memory_order_relaxed) == 0) return;
  for (int attempt = 0; attempt < 4; ++attempt) {
    if (!engine_.try_acquire()) continue;
    // A full round costs a system call for each socket that it looks at.
    Rest rest = engine_.rest();
    const bool put_off = engine_.puts_off(rest);
    if (rest.left_over && !put_off) {
      engine_.round(true);
      rest = engine_.rest();
    }
    engine_.helped_.store(engine_.helped_.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
    engine_.release();
    // What waits for somebody who cannot call, the thread is to look at: it may have gone to sleep
    // for good before our steps were posted.
    if (put_off ? !engine_.guarded_.exchange(true) : rest.left_over || rest.polled) engine_.wake();
    return;
  }
  engine_.wake();  // another thread is in a round that may have passed our steps
}

ProxyEngine::Counters ProxyEngine::counters() const {
  return {steps_.load(std::memory_order_relaxed),  bytes_.load(std::memory_order_relaxed),
          rounds_.load(std::memory_order_relaxed), helped_.load(std::memory_order_relaxed),
          sleeps_.load(std::memory_order_relaxed), task_count_.load(std::memory_order_relaxed)};
}

}  // namespace ccl
