#include "base/thread.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/exec/host_executor.hpp>

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/exceptions.hpp"
#include "base/io/os_error.hpp"
#include <dlfcn.h>
#include <sys/resource.h>

namespace ccl::detail {

void stay_loaded() {
  static std::atomic<bool> stays{false};
  if (stays.load(std::memory_order_relaxed)) return;
  Dl_info here{};
  if (::dladdr(&stays, &here) != 0 && here.dli_fname != nullptr) {
    // Null in a program itself, which cannot be closed. The extra reference to the library stays.
    (void)::dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }
  stays.store(true, std::memory_order_relaxed);
}

namespace {
/// A stack that finds no address space fails in the same way as one thread too many.
std::string limit_of_stacks() {
  rlimit addresses{}, stack{};
  if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur == RLIM_INFINITY) return {};
  ::getrlimit(RLIMIT_STACK, &stack);
  const std::string each =
      stack.rlim_cur == RLIM_INFINITY ? "more" : fmt::format("{} KiB", stack.rlim_cur >> 10);
  return fmt::format(" or that on addresses (ulimit -v is {}, and a stack takes {}: ulimit -s)",
                     addresses.rlim_cur >> 10, each);
}

}  // namespace

NoSignals::NoSignals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

Error no_thread(std::string_view what, Error why) noexcept {
  if (why.code != Errc::system) return why;
  const int code = why.os_code;
  (void)completes([&] {
    why = os_error(Errc::system,
                   fmt::format("cannot start a thread for {} ({}); raise the limit on threads "
                               "(ulimit -u, or pids.max of the container){}",
                               what, why.what, limit_of_stacks()),
                   code);
  });
  return why;
}

/// Lanes of a scope on detached threads. A thread cannot join them, because one that is left behind
/// never ends.
struct LanesInScope {
  std::mutex mutex;
  std::condition_variable ended;
  int running = 0;

  void begin(LaneScope& scope) {
    const std::lock_guard lock{mutex};
    ++running;
    scope.running.fetch_add(1);
  }
  void end(LaneScope& scope) {
    const std::lock_guard lock{mutex};
    scope.running.fetch_sub(1);
    --running;
    ended.notify_all();
  }
};

struct LaneThreads::Threads {
  std::vector<std::thread> started;
  std::shared_ptr<LanesInScope> in_scope;
};

namespace {
/// Starts a lane in the scope of this thread.
Result<void> start_in_scope(const std::shared_ptr<LanesInScope>& lanes,
                            void (*lane)(const void* context, int channel), const void* context,
                            int channel) {
  const ThreadFacts facts = this_thread_facts;
  lanes->begin(*facts.lanes);
  auto thread = own_thread("each channel", [=] {
    this_thread_facts = facts;
    lane(context, channel);
    lanes->end(*facts.lanes);
  });
  if (!thread) {
    lanes->end(*facts.lanes);
    return fail(std::move(thread).error());
  }
  thread->detach();
  return {};
}
}  // namespace

/// Waits without an end if a lane is left behind. Whoever waits for the scope does not.
void LaneThreads::join() {
  LaneScope* const scope = this_thread_facts.lanes;
  for (auto& thread : threads_->started) thread.join();
  if (scope != nullptr && threads_->in_scope != nullptr) {
    scope->running.fetch_sub(1);
    const std::shared_ptr<LanesInScope> lanes = threads_->in_scope;
    std::unique_lock lock{lanes->mutex};
    lanes->ended.wait(lock, [&] { return lanes->running == 0; });
    scope->running.fetch_add(1);
  }
  delete threads_;
}

bool LaneThreads::start(void (*lane)(const void* context, int channel), const void* context,
                        int channel) {
  const auto started = without_exceptions([&]() -> Result<void> {
    if (threads_ == nullptr) threads_ = new Threads;
    if (this_thread_facts.lanes != nullptr) {
      if (threads_->in_scope == nullptr) threads_->in_scope = std::make_shared<LanesInScope>();
      return start_in_scope(threads_->in_scope, lane, context, channel);
    }
    auto& all = threads_->started;
    all.reserve(all.size() + 1);  // before the thread, which must not be lost
    CCL_TRY(auto thread, own_thread("each channel", [=] { lane(context, channel); }));
    all.push_back(std::move(thread));
    return {};
  });
  if (started) return true;
  static std::atomic<bool> reported{false};
  if (!reported.exchange(true)) {
    log_warn(LogPart::coll, "{}: channels run one after another", started.error().what);
  }
  return false;
}

}  // namespace ccl::detail
