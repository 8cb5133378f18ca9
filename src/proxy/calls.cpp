// Calls of an engine's tasks to other libraries, and threads that are left behind in them.
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/detail/runtime/proxy_helper.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "base/exceptions.hpp"
#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "base/thread.hpp"
#include "net/engine.hpp"
#include "proxy/lane_runners.hpp"
#include "proxy/library_calls.hpp"

namespace ccl::detail {
namespace {

constexpr double last_call_s = 1;  // of a call, once the communicator has failed or ends
constexpr auto access_limit = std::chrono::seconds{3};  // as for lanes that revoke buffers
constexpr auto shortest_pause = std::chrono::microseconds{50};
constexpr auto longest_pause = std::chrono::microseconds{5000};

/// Tasks with a call that has not returned. It may still write to their memory.
struct Stuck {
  std::vector<std::shared_ptr<ProxyTask>> tasks;
  ForkMutex mutex{[this] { renew(tasks); }};
};
constinit MadeOnce<Stuck> stuck;

}  // namespace

void LibraryCalls::wake() {
  const std::lock_guard lock{mutex};
  if (engine != nullptr) engine->wake();
}

Result<std::shared_ptr<LibraryCalls>> ProxyEngine::library_calls() {
  {
    const std::lock_guard lock{start_mutex_};
    if (calls_ != nullptr) return calls_;
  }
  auto made = std::make_shared<LibraryCalls>(*this);
  auto runners = std::make_unique<LaneRunners>();
  {
    const std::lock_guard lock{start_mutex_};
    if (calls_ != nullptr) return calls_;
    calls_ = made;
    lane_runners_ = std::move(runners);
    calls_now_.store(made.get());
  }
  const auto lock = net::Engine::get().lock();
  // An engine that ends holds the mutex while it looks itself.
  CCL_CHECK(net::Engine::get().add_ticker([weak = std::weak_ptr{made}] {
    const auto calls = weak.lock();
    if (calls == nullptr) return false;
    const std::unique_lock looks{calls->mutex, std::try_to_lock};
    if (!looks.owns_lock()) return true;
    if (calls->engine == nullptr) return false;
    calls->engine->look_at_calls();
    return true;
  }));
  return made;
}

void ProxyEngine::end_calls() {
  if (calls_ == nullptr) return;
  const std::lock_guard lock{calls_->mutex};
  calls_->engine = nullptr;
}

void ProxyEngine::look_at_calls() {
  const LibraryCalls::Seen seen = calls_->look();
  if (seen.number == 0) return;
  double limit_s = seen.limit_s > 0 ? seen.limit_s : std::numeric_limits<double>::infinity();
  if (stop_.load() || (status_ != nullptr && !status_->ok())) {
    limit_s = std::min(limit_s, last_call_s);
  }
  LaneScope* lanes = nullptr;
  if (seen.seconds < limit_s || !calls_->take(seen.number, lanes)) return;
  leave_behind(lanes, seen.function, seen.seconds);
}

/// The thread of the call had the round, and never goes on. So this thread has the round.
void ProxyEngine::leave_behind(LaneScope* lanes, const char* function, double seconds) {
  std::shared_ptr<ProxyTask> task;
  for (auto& one : tasks_) {
    if (one.get() == current_) task = std::move(one);
  }
  std::replace(by_fd_.begin(), by_fd_.end(), task.get(), static_cast<ProxyTask*>(nullptr));
  std::erase(tasks_, nullptr);
  first_ = 0;
  task_count_.store(int(tasks_.size()), std::memory_order_relaxed);
  if (lanes == nullptr) {
    const std::lock_guard lock{start_mutex_};
    if (thread_.joinable()) thread_.detach();
    const auto started = stop_.load() ? Result<void>{} : start_thread();
    if (!started && status_ != nullptr) status_->set(started.error());
  }
  release();
  Error error{Errc::timed_out, {}};
  if (task != nullptr) {
    const auto say = [&] { error = task->left_in_call(function, seconds, lanes != nullptr); };
    if (!completes(say)) error = {Errc::out_of_memory, {}};  // the launch must end all the same
    const auto keep = [&] {
      const std::lock_guard lock{stuck.get().mutex};
      stuck.get().tasks.push_back(task);
    };
    if (!completes(keep)) (void)new (std::nothrow) std::shared_ptr<ProxyTask>{task};
  }
  if (lanes != nullptr) {
    // The lane has not ended, so its launch must fail, whatever the task of the call was for.
    if (status_ != nullptr) status_->set(std::move(error));
    lanes->leave_one();  // from here on the launch may end
  }
  wake();
}

bool ProxyEngine::await_library_calls(double limit_s) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  const auto has_returned = [end](ProxyEngine& of) {
    if (of.calls_now_.load() == nullptr) return true;
    while (!of.round_lock()) {  // a call is made with it
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(shortest_pause);
    }
    return true;
  };
  bool all = has_returned(*this);
  const std::lock_guard lock{start_mutex_};
  for (const auto& engine : further_) all = has_returned(*engine) && all;
  return all;
}

void ProxyEngine::await_no_access() {
  const auto end = std::chrono::steady_clock::now() + access_limit;
  for (bool any = true; any && std::chrono::steady_clock::now() < end;) {
    wake();
    if (const RoundLock mine = round_lock()) {
      any = std::any_of(tasks_.begin(), tasks_.end(),
                        [](const auto& task) { return task->calls_library && task->has_access(); });
    }
    if (any) std::this_thread::sleep_for(shortest_pause);
  }
}

void ProxyEngine::await_thread() {
  if (LibraryCalls* const calls = calls_now_.load()) {
    for (auto pause = shortest_pause;; pause = std::min(2 * pause, longest_pause)) {
      {
        const std::lock_guard lock{calls->mutex};
        if (!thread_.joinable() || ended_.load()) break;
        look_at_calls();
      }
      std::this_thread::sleep_for(pause);
    }
  }
  if (thread_.joinable()) thread_.join();
}

void ProxyEngine::finish_apart(Time end) {
  const auto more = [this] {
    return any_ending() || std::ranges::any_of(further_, &ProxyEngine::any_ending,
                                               [](const auto& one) -> auto& { return *one; });
  };
  while (more() && std::chrono::steady_clock::now() < end) {
    ended_.store(false);
    auto thread = own_thread("the end of the proxy", [this, end] {
      this_thread_facts.can_be_left = true;
      if (!completes([&] { finish(end); })) fail_thrown();
      ended_.store(true);
    });
    if (!thread) return finish(end);  // without tasks that call
    {
      const std::lock_guard lock{start_mutex_};
      thread_ = *std::move(thread);
    }
    await_thread();
  }
}

void ProxyEngine::run_lanes(void (*lanes)(void* of), void* of, bool looks_elsewhere) {
  struct Lanes {
    ProxyEngine& engine;
    void (*const lanes)(void* of);
    void* const of;
    const bool looks_elsewhere;
    static void run(void* given) {
      const Lanes all = *static_cast<const Lanes*>(given);
      const ProxyHelper helps{all.engine, all.looks_elsewhere};
      all.lanes(all.of);
    }
  } all{*this, lanes, of, looks_elsewhere};
  const bool calls = calls_now_.load() != nullptr;
  struct AtEnd {  // a functor may throw
    ProxyEngine& engine;
    const bool calls;
    // A lane that is left behind has revoked no buffer.
    ~AtEnd() {
      if (calls && engine.status_ != nullptr && !engine.status_->ok()) engine.await_no_access();
    }
  } const at_end{*this, calls};
  // The engine's thread alone makes the calls where the system has no thread left.
  if (!calls || !lane_runners_->run(&Lanes::run, &all)) Lanes::run(&all);
}

}  // namespace ccl::detail
