#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <limits>
#include <utility>

#include "base/exceptions.hpp"
#include "base/io/os_error.hpp"
#include "base/numa.hpp"
#include "base/thread.hpp"
#include "proxy/lane_runners.hpp"
#include "proxy/library_calls.hpp"
#include "proxy/transfer_listener.hpp"
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace ccl::detail {
namespace {
// Time between two checks that helpers still run. It grows while they do, because each check takes
// a core from a rank.
constexpr long helped_sleep_us = 500, longest_helped_sleep_us = 4000;
constexpr long idle_sleep_us = 4000;  // while a helper blocks; any event wakes the helper
constexpr std::size_t few_tasks = 4;  // trying them costs less than epoll
constexpr int idle_rounds = 32;       // rounds without any movement before the thread blocks
constexpr double last_rounds_s = 1;   // time limit for tasks that are ending when the engine ends
// For a thread that adds a task: a call to another library, and tries before it sleeps.
constexpr double longest_call_s = 10;
constexpr unsigned short_rounds = 1000, long_round_us = 50;
// Limits of polling a task: a launch may take `eager_us` between two steps, and a poll costs some
// us.
constexpr long eager_us = 300, rarest_look_us = 1000;

constexpr Word late_ns = 100'000;  // age of deferred work at which the thread moves it
// After a wrong guess, about 45 quick calls must pass before the next.
constexpr Word wrong_guess_ns = 10'000'000;
constexpr long guard_us = 100;
constexpr int idle_guards = 8;

/// Pause between two polls of tasks, if nothing has moved for `quiet_us`.
long between_looks_us(long quiet_us) {
  return quiet_us < eager_us ? 0 : std::min(quiet_us / 8, rarest_look_us);
}
/// Time until `then`, rounded up.
long until_us(std::chrono::steady_clock::time_point then) {
  const auto left = then - std::chrono::steady_clock::now();
  return std::max(0L, long(std::chrono::ceil<std::chrono::microseconds>(left).count()));
}
}  // namespace

ProxyEngine::ProxyEngine(Status* status) : status_{status} {}

/// Tasks of all engines wake each other, so that all engines live until the last task has ended.
ProxyEngine::~ProxyEngine() {
  stop();
  for (const auto& engine : further_) engine->stop();
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds{long(last_rounds_s * 1000)};
  calls_now_.load() == nullptr ? finish(end) : finish_apart(end);
  end_calls();
  tasks_.clear();
  for (const auto& engine : further_) engine->tasks_.clear();
  further_.clear();
  if (watch_ >= 0) ::close(watch_);
  if (doorbell_ >= 0) ::close(doorbell_);
}

void ProxyEngine::note_transfers(int size) {
  if (size > 0) transfers_ = std::make_unique<TransferLog>(size);
}

void ProxyEngine::stop() {
  stop_.store(true);
  wake();
  await_thread();
}

void ProxyEngine::finish(Time end) {
  while (std::chrono::steady_clock::now() < end) {
    bool ending = any_ending(), moved = ending && round();
    for (const auto& engine : further_) {
      if (!engine->any_ending()) continue;
      ending = true;
      moved = engine->round() || moved;
    }
    if (!ending) break;
    if (!moved) sleep(true, 1000);
  }
}

bool ProxyEngine::any_ending() const {
  // Without their calls, tasks come to no end.
  const bool may_call = !LibraryCalls::have_ended();
  return std::any_of(tasks_.begin(), tasks_.end(), [=](const auto& task) {
    return task->ending() && (may_call || !task->calls_library);
  });
}

Result<void> ProxyEngine::start_thread() {
  CCL_TRY(thread_, own_thread("the proxy", [this] { run(); }));
  return {};
}

Result<void> ProxyEngine::add(std::shared_ptr<ProxyTask> task) {
  std::unique_lock lock{start_mutex_};
  if (doorbell_ < 0) {
    doorbell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (doorbell_ < 0) {
      const int os_code = errno;
      return fail(detail::os_error(
          Errc::system, fmt::format("cannot make an eventfd ({})", std::strerror(os_code)),
          os_code));
    }
  }
  if (!thread_.joinable()) {
    if (watch_ < 0) watch_ = ::epoll_create1(EPOLL_CLOEXEC);  // without it, all tasks try
    CCL_CHECK(start_thread());
    log_info(LogPart::proxy, "a proxy thread drives this rank's connections");
  }
  lock.unlock();  // the thread may be replaced meanwhile
  {
    const RoundLock mine = await_round_lock(longest_call_s);
    if (!mine) {
      return fail(Errc::timed_out,
                  fmt::format("the proxy cannot take a new connection, because a call to a plug-in "
                              "has not returned for {} s; look there",
                              longest_call_s));
    }
    // Before it is watched. Jobs with many channels add thousands of tasks.
    if (tasks_.size() == tasks_.capacity()) tasks_.reserve(2 * tasks_.size() + 1);
    if (transfers_ != nullptr) transfers_->tell(ProxyTurn::adds);
    watch(*task);
    tasks_.push_back(std::move(task));
    task_count_.store(int(tasks_.size()), std::memory_order_relaxed);
    if (transfers_ != nullptr) transfers_->tell(ProxyTurn::added, 1);
  }
  wake();
  return {};
}

ProxyEngine& ProxyEngine::further(int n) {
  const std::lock_guard lock{start_mutex_};
  while (int(further_.size()) <= n) {
    further_.push_back(std::make_unique<ProxyEngine>(status_));
    further_.back()->run_on(cpus_);
  }
  return *further_[std::size_t(n)];
}

ProxyEngine::RoundLock ProxyEngine::await_round_lock(double call_limit_s) {
  Word seen = 0;
  auto since = std::chrono::steady_clock::now();
  for (unsigned tries = 0;; ++tries) {
    RoundLock mine = round_lock();
    if (mine || tries < short_rounds) {
      if (mine) return mine;
      ::sched_yield();  // rounds are short
      continue;
    }
    ::usleep(long_round_us);
    const LibraryCalls* const calls = calls_now_.load();
    const Word now = calls == nullptr ? 0 : calls->number();
    if (now == 0 || std::exchange(seen, now) != now) since = std::chrono::steady_clock::now();
    const auto waited = std::chrono::steady_clock::now() - since;
    if (waited > std::chrono::duration<double>(call_limit_s)) return {nullptr, nullptr};
  }
}

void ProxyEngine::fail_thrown() noexcept {
  Error error = error_of_exception();
  if (status_ != nullptr) status_->set(std::move(error));
}

ProxyTask::Progress ProxyEngine::progress_of(ProxyTask& task) {
  current_ = &task;
  try {
    return task.progress(moved_);
  } catch (...) {
    fail_thrown();
    return ProxyTask::Progress::ended;
  }
}

void ProxyEngine::watch(ProxyTask& task) {
  const int fd = task.watched();
  if (fd < 0 || fd == task.readiness.fd || watch_ < 0) return;
  task.readiness.fd = fd;
  const auto places = std::size_t(fd) + 1;
  if (by_fd_.size() < places && !completes([&] { by_fd_.resize(places); })) return;  // it tries
  epoll_event event{EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {}};
  event.data.fd = fd;
  if (::epoll_ctl(watch_, EPOLL_CTL_ADD, fd, &event) != 0) return;
  by_fd_[std::size_t(fd)] = &task;
  task.readiness.reported = listening_;
  // A system call reports if they are not.
  task.readiness.readable = task.readiness.writable = true;
}

/// Records which descriptors have become ready since the last call. Those that were ready are still
/// ready.
void ProxyEngine::listen() {
  const bool many = tasks_.size() > few_tasks;
  if (many != listening_) {
    listening_ = many;
    for (const auto& task : tasks_) {
      if (task == nullptr) continue;
      ProxyReadiness& readiness = task->readiness;
      readiness.reported = many && readiness.fd >= 0 && std::size_t(readiness.fd) < by_fd_.size() &&
                           by_fd_[std::size_t(readiness.fd)] == task.get();
      readiness.readable = readiness.writable = true;
    }
  }
  if (!many || watch_ < 0) return;
  constexpr int most = 64;  // the others follow in the next round
  epoll_event events[most];
  const int count = ::epoll_wait(watch_, events, most, 0);
  for (int n = 0; n < count; ++n) {
    ProxyTask* const task = by_fd_[std::size_t(events[n].data.fd)];
    if (task == nullptr) continue;
    ProxyReadiness& readiness = task->readiness;
    const auto is = events[n].events;
    readiness.closed = readiness.closed || (is & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    readiness.readable = readiness.readable || readiness.closed || (is & EPOLLIN) != 0;
    readiness.writable = readiness.writable || readiness.closed || (is & EPOLLOUT) != 0;
  }
}

bool ProxyEngine::round(bool left_over_only) {
  bool moved = false, ended = false;
  const bool may_call = LibraryCalls::may_call() && !LibraryCalls::have_ended();
  skipped_ = false;
  deferred_ns_.store(0, std::memory_order_relaxed);  // all tasks with work are tried
  const std::size_t count = tasks_.size();
  const auto run_tasks = [&](auto&& has_turn) {
    for (std::size_t n = 0; n < count; ++n) {
      auto& task = tasks_[first_ + n < count ? first_ + n : first_ + n - count];
      if (task == nullptr || !has_turn(*task)) continue;
      if (task->calls_library && !may_call) {
        skipped_ = true;
        continue;
      }
      switch (progress_of(*task)) {
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
    run_tasks([](const ProxyTask& task) { return task.left_over; });
  } else {
    // A send takes long enough for data to arrive meanwhile, and reports itself what has arrived.
    run_tasks([](const ProxyTask& task) { return task.goes_first; });
    listen();
    run_tasks([](const ProxyTask& task) { return !task.goes_first; });
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
    registered_bytes_.store(moved_.registered_bytes, std::memory_order_relaxed);
  }
  return moved;
}

void ProxyEngine::wake() {
  called_.store(true);  // before the load of `asleep_`; the thread uses the opposite order
  if (asleep_.load()) ::eventfd_write(doorbell_, 1);
}

void ProxyEngine::wake_polled() {
  wake();
  const std::lock_guard lock{start_mutex_};
  for (const auto& engine : further_) {
    if (engine->polled_.load(std::memory_order_relaxed)) engine->wake();
  }
}

/// Blocks until a thread calls or nothing has been deferred for a while. Returns true if there is
/// work.
bool ProxyEngine::guard() {
  for (int idle = 0; idle < idle_guards && !stop_.load(std::memory_order_relaxed);) {
    if (sleep(false, guard_us)) return true;
    const Word since = deferred_ns_.load();
    idle = since == 0 ? idle + 1 : 0;
    if (since == 0 || HostMemory::now_ns() - since < late_ns) continue;
    const RoundLock mine = round_lock();
    if (!mine) continue;
    round();
    call_ns_ = wrong_guess_ns;
    rounds_.store(rounds_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  guarded_.store(false);  // before the check; a deferring helper uses the opposite order
  return deferred_ns_.load() != 0;
}

void ProxyEngine::run() {
  this_thread_facts.can_be_left = true;
  detail::run_on(cpus_);
  try {
    move_tasks();
  } catch (...) {
    fail_thrown();
  }
  ended_.store(true);
}

void ProxyEngine::move_tasks() {
  Word seen = 0;  // rounds of helpers at the last check
  long helped_us = helped_sleep_us;
  int idle = 0;
  bool called = false, fresh = true;  // `fresh`: something has moved, or a thread has called
  bool active = false;                // rounds of this thread move something
  std::chrono::steady_clock::time_point quiet_since;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (!called && guarded_.load()) {
      called = guard();
      idle = 0;  // helpers rely on the thread, so its sleep is bounded
    }
    const Word helped = helped_.load(std::memory_order_relaxed);
    const bool idle_waiters = idle_waiters_.load(std::memory_order_relaxed) > 0;
    if ((helped != seen || idle_waiters) && !called) {
      seen = helped;
      idle = 0;
      called = sleep(false, idle_waiters ? idle_sleep_us : helped_us);
      helped_us = std::min(2 * helped_us, longest_helped_sleep_us);
      continue;
    }
    helped_us = helped_sleep_us;
    fresh = fresh || called;
    called = false;
    bool moved = false;
    if (const RoundLock mine = round_lock()) {
      moved = round();
      rounds_.store(rounds_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    const bool is_idle = !moved && ++idle >= idle_rounds;
    if ((moved || is_idle) && active != moved) {
      active = moved;
      if (transfers_ != nullptr) transfers_->tell(moved ? ProxyTurn::active : ProxyTurn::idle);
    }
    if (moved) {
      idle = 0;
      fresh = true;
    } else if (!is_idle) {
      ::sched_yield();
    } else {
      idle = 0;
      const auto now = std::chrono::steady_clock::now();
      if (std::exchange(fresh, false)) quiet_since = now;
      const auto quiet = std::chrono::duration_cast<std::chrono::microseconds>(now - quiet_since);
      const long pause_us = between_looks_us(long(quiet.count()));
      called = sleep(true, -1, pause_us);
      if (polled_ && pause_us > 0 && !called) idle = idle_rounds;  // one poll, then the next sleep
    }
  }
}

/// Blocks until a thread calls, until the timeout (-1: never) or, with `for_tasks`, until a task
/// can move or has a deadline. If a task is polled, the timeout is at most `polled_us`. Returns
/// true if a thread called.
bool ProxyEngine::sleep(bool for_tasks, long timeout_us, long polled_us) {
  // Without memory for the list it does not block, and looks again.
  if (!completes([this] { watched_.assign(1, {doorbell_, POLLIN, 0}); })) {
    ::sched_yield();
    return called_.exchange(false);
  }
  if (!for_tasks) polled_.store(true, std::memory_order_relaxed);  // it has a timeout
  asleep_.store(true);
  bool stay = !called_.load();
  if (for_tasks && stay) {
    bool polled = false;
    auto deadline = std::chrono::steady_clock::time_point::max();
    const RoundLock mine = await_round_lock(std::numeric_limits<double>::infinity());
    stay = completes([this] { watched_.reserve(tasks_.size() + 1); });
    for (const auto& task : tasks_) {
      if (task->arm()) stay = false;
      const ProxyInterest interest = task->interest();
      if (interest.pending || (interest.polled && polled_us == 0)) stay = false;
      if (interest.polled && polled_us > 0) timeout_us = polled_us;
      polled = polled || interest.polled;
      deadline = std::min(deadline, interest.deadline);
      if (interest.fd >= 0 && interest.events != 0 && watched_.size() < watched_.capacity()) {
        watched_.push_back({interest.fd, interest.events, 0});
      }
    }
    polled_.store(polled, std::memory_order_relaxed);
    if (deadline != std::chrono::steady_clock::time_point::max()) {
      const long left_us = until_us(deadline);
      timeout_us = timeout_us < 0 ? left_us : std::min(timeout_us, left_us);
    }
  }
  if (stay) {
    sleeps_.store(sleeps_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    const timespec limit{timeout_us / 1'000'000, timeout_us % 1'000'000 * 1000};
    if (transfers_ != nullptr) transfers_->tell(ProxyTurn::sleeps);
    ::ppoll(watched_.data(), nfds_t(watched_.size()), timeout_us < 0 ? nullptr : &limit, nullptr);
    if (transfers_ != nullptr) transfers_->tell(ProxyTurn::woken);
  }
  asleep_.store(false);
  if (watched_[0].revents != 0) {
    eventfd_t rings = 0;
    ::eventfd_read(doorbell_, &rings);
  }
  return called_.exchange(false);
}

ProxyEngine::Counters ProxyEngine::counters() const {
  return {
      steps_.load(std::memory_order_relaxed),           bytes_.load(std::memory_order_relaxed),
      rounds_.load(std::memory_order_relaxed),          helped_.load(std::memory_order_relaxed),
      sleeps_.load(std::memory_order_relaxed),          task_count_.load(std::memory_order_relaxed),
      registered_bytes_.load(std::memory_order_relaxed)};
}

ProxyEngine::Activity ProxyEngine::activity() const {
  Activity now;
  now.turns = rounds_.load(std::memory_order_relaxed) + helped_.load(std::memory_order_relaxed) +
              sleeps_.load(std::memory_order_relaxed);
  now.wanted = task_count_.load(std::memory_order_relaxed) > 0 &&
               (busy_.load(std::memory_order_relaxed) || called_.load(std::memory_order_relaxed) ||
                !asleep_.load(std::memory_order_relaxed));
  return now;
}

std::optional<ProxyEngine::Activity> ProxyEngine::further_activity(std::size_t n) {
  const std::unique_lock lock{start_mutex_, std::try_to_lock};
  if (!lock || n >= further_.size()) return {};
  return further_[n]->activity();
}

Word ProxyEngine::bytes_moved() {
  Word bytes = bytes_.load(std::memory_order_relaxed);
  const std::unique_lock lock{start_mutex_, std::try_to_lock};
  if (!lock) return bytes;
  for (const auto& engine : further_) bytes += engine->bytes_.load(std::memory_order_relaxed);
  return bytes;
}

}  // namespace ccl::detail
