#include "transport/proxied/late_calls.hpp"

#include <ccl/detail/runtime/proxy_engine.hpp>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/exceptions.hpp"
#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "base/thread.hpp"

namespace ccl::detail {

struct LateCalls::Shared {
  struct Line {
    bool asked = false;
    std::optional<Result<net::SecureSocket>> result{};
  };
  const std::vector<ProxyEngine*> engines;
  const Call call;
  Status stop{};
  mutable std::mutex mutex{};  // guards what follows
  std::vector<Line> lines;
  bool ended = false;  // the engines may be gone

  Shared(std::vector<ProxyEngine*> of, std::size_t count, Call how)
      : engines{std::move(of)}, call{std::move(how)}, lines(count) {}

  void run(std::size_t line) {
    if (!stop.ok()) return;
    auto made = without_exceptions([&] { return call(line, &stop); });
    const std::lock_guard lock{mutex};
    if (ended) return;
    lines[line].result = std::move(made);
    for (ProxyEngine* const engine : engines) engine->wake();
  }
};

/// Thread that makes the connections of an engine, one after the other.
class LateCaller {
 public:
  static std::shared_ptr<LateCaller> of(const ProxyEngine* engine) {
    const std::lock_guard lock{callers().mutex};
    std::weak_ptr<LateCaller>& known = callers().all[engine];
    if (auto caller = known.lock()) return caller;
    auto made = std::make_shared<LateCaller>();
    known = made;
    std::erase_if(callers().all, [](const auto& one) { return one.second.expired(); });
    return made;
  }

  ~LateCaller() {
    {
      const std::lock_guard lock{mutex_};
      stop_ = true;
    }
    asked_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  Result<void> ask(std::shared_ptr<LateCalls::Shared> of, std::size_t line) {
    const std::lock_guard lock{mutex_};
    if (!thread_.joinable()) {
      CCL_TRY(thread_, own_thread("the opening of connections", [this] { serve(); }));
    }
    jobs_.emplace_back(std::move(of), line);
    asked_.notify_one();
    return {};
  }

 private:
  struct Callers {
    std::map<const ProxyEngine*, std::weak_ptr<LateCaller>> all;
    ForkMutex mutex{[this] { renew(all); }};
  };
  static Callers& callers() {
    static constinit MadeOnce<Callers> one;
    return one.get();
  }

  void serve() noexcept {
    std::unique_lock lock{mutex_};
    while (!stop_) {
      if (jobs_.empty()) {
        asked_.wait(lock);
        continue;
      }
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job.first->run(job.second);
      job = {};
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable asked_;
  std::deque<std::pair<std::shared_ptr<LateCalls::Shared>, std::size_t>> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

std::unique_ptr<LateCalls> LateCalls::make(std::vector<ProxyEngine*> engines, std::size_t lines,
                                           Call call) {
  auto caller = LateCaller::of(engines.front());
  auto shared = std::make_shared<Shared>(std::move(engines), lines, std::move(call));
  return std::unique_ptr<LateCalls>{new LateCalls{std::move(caller), std::move(shared)}};
}

LateCalls::LateCalls(std::shared_ptr<LateCaller> caller, std::shared_ptr<Shared> shared)
    : caller_{std::move(caller)}, shared_{std::move(shared)} {}

LateCalls::~LateCalls() {
  shared_->stop.set({Errc::aborted, "the connection is not wanted any more"});
  const std::lock_guard lock{shared_->mutex};
  shared_->ended = true;
}

Result<net::SecureSocket> LateCalls::open(std::size_t line) {
  const std::lock_guard lock{shared_->mutex};
  Shared::Line& of = shared_->lines[line];
  if (of.result) {
    of.asked = false;
    return *std::exchange(of.result, {});
  }
  if (!of.asked) {
    CCL_CHECK(caller_->ask(shared_, line));
    of.asked = true;
  }
  return net::SecureSocket{};
}

bool LateCalls::contains(std::size_t line) const {
  const std::lock_guard lock{shared_->mutex};
  return shared_->lines[line].result.has_value();
}

}  // namespace ccl::detail
