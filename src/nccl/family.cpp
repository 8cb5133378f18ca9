#include "nccl/family.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "base/exceptions.hpp"
#include "base/fork_mutex.hpp"
#include "base/forks.hpp"
#include "base/made_once.hpp"
#include "base/thread.hpp"
#include "comm/state.hpp"

namespace ccl::detail::nccl {
namespace {

// Times for ranks of other processes. The short one lets a process go on to end its other
// communicators: the others may end theirs in another order.
constexpr std::chrono::milliseconds grace{5000}, short_grace{200};

struct Family {
  int live = 0, joined = 0;  // ranks of this process
  int ranks = 0;             // of the communicator
  std::vector<std::shared_ptr<Ending>> endings;
};
struct Families {
  std::map<std::string, Family> all;
  std::vector<std::shared_ptr<Ending>> late;  // of earlier ones: the last end waits for them again
  ForkMutex mutex{[this] {
    renew(all);
    renew(late);
  }};
};
// Never destroyed: ranks may be ending while the process exits.
Families& families() {
  static constinit MadeOnce<Families> all;
  return all.get();
}

/// Ends that run on while the program goes on.
class LeftBehind {
 public:
  static LeftBehind& instance() {
    static constinit MadeOnce<LeftBehind> one;
    return one.get();
  }
  void add() {
    const std::lock_guard lock{mutex_};
    if (std::exchange(process_, forks_before()) != forks_before()) count_ = 0;  // of the parent
    ++count_;
    static const int registered = std::atexit([] { instance().wait_at_exit(); });
    (void)registered;
  }
  void remove() {
    const std::lock_guard lock{mutex_};
    --count_;
    changed_.notify_all();
  }

 private:
  /// Waits at the exit of the process: without its connections the other ranks would fail.
  void wait_at_exit() {
    constexpr std::chrono::seconds limit{60};
    std::unique_lock lock{mutex_};
    const auto none = [this] { return count_ == 0 || process_ != forks_before(); };
    changed_.wait_for(lock, limit, none);
  }

  int count_ = 0;
  int process_ = forks_before();  // whose threads they are
  ForkMutex mutex_{[this] { count_ = 0; }};
  std::condition_variable_any changed_;
};

}  // namespace

Result<std::shared_ptr<Ending>> Ending::start(Communicator comm, std::shared_ptr<void> kept) {
  auto made = std::make_shared<Ending>();
  Access::state(comm)->departure.leave_to_end();
  CCL_TRY(made->thread_,
          own_thread("the end of a communicator",
                     [made, comm = std::move(comm), kept = std::move(kept)]() mutable {
                       made->run(std::move(comm), std::move(kept));
                     }));
  return made;
}

/// Waits for this communicator's work alone: other work of the device may wait for what the program
/// does next.
void Ending::run(Communicator comm, std::shared_ptr<void> kept) {
  Result<void> own = without_exceptions(
      [&] { return Access::state(comm)->await_calls("the end of the communicator"); });
  const bool goes_on = own.has_value();
  {
    const std::lock_guard lock{mutex_};
    own_ = std::move(own);
    changed_.notify_all();
  }
  Result<void> all;
  if (goes_on) all = without_exceptions([&] { return comm.finalize(); });
  kept.reset();
  (void)Communicator{std::move(comm)};
  const std::lock_guard lock{mutex_};
  all_ = std::move(all);
  changed_.notify_all();
  if (left_behind_) LeftBehind::instance().remove();
}

Result<void> Ending::wait_for_own_work() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return own_.has_value(); });
  return *own_;
}

Result<void> Ending::wait_for_all() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return all_.has_value(); });
  return *own_ ? *all_ : *own_;
}

bool Ending::wait_for_all_until(std::chrono::steady_clock::time_point then) {
  std::unique_lock lock{mutex_};
  return changed_.wait_until(lock, then, [this] { return all_.has_value(); });
}

void Ending::join() {
  thread_.join();
}

std::shared_ptr<void> hold_exit() {
  LeftBehind::instance().add();
  return {nullptr, [process = forks_before()](void*) {
            if (process == forks_before()) LeftBehind::instance().remove();
          }};
}

void Ending::leave_behind() {
  const std::lock_guard lock{mutex_};
  thread_.detach();
  if (all_) return;
  left_behind_ = true;
  LeftBehind::instance().add();
}

void join_family(const std::string& name, int ranks) {
  const std::lock_guard lock{families().mutex};
  Family& family = families().all[name];
  ++family.live;
  ++family.joined;
  family.ranks = ranks;
}

void prepare_end(const std::string& name) {
  const std::lock_guard lock{families().mutex};
  const auto known = families().all.find(name);
  if (known == families().all.end()) return;  // all ranks have ended
  Family& family = known->second;
  family.endings.reserve(family.endings.size() + std::size_t(family.live));
}

namespace {

using Endings = std::vector<std::shared_ptr<Ending>>;

/// Waits for the ends at most until `then`. Returns those that are late.
Endings late_of(const Endings& endings, std::chrono::steady_clock::time_point then) {
  Endings late;
  for (const auto& one : endings) {
    if (!one->wait_for_all_until(then)) late.push_back(one);
  }
  return late;
}

/// Keeps late ends for the last one of the process. Returns false if that has come.
bool keep_for_last(const Endings& late) {
  const std::lock_guard lock{families().mutex};
  if (families().all.empty()) return false;
  auto& all = families().late;
  all = late_of(all, {});
  all.insert(all.end(), late.begin(), late.end());
  return true;
}

}  // namespace

Result<void> leave_family(const std::string& name, std::shared_ptr<Ending> ending, EndWaits waits) {
  Endings endings, earlier;
  bool all_here = false, last = false;
  {
    const std::lock_guard lock{families().mutex};
    Family& family = families().all[name];
    if (ending) family.endings.push_back(ending);  // has room: see `prepare_end`
    if (--family.live > 0) return {};
    endings = std::move(family.endings);
    all_here = family.joined >= family.ranks;
    families().all.erase(name);
    last = families().all.empty() && !endings.empty();
    if (last) earlier = std::exchange(families().late, {});
  }
  const bool for_all = all_here || waits == EndWaits::all_ranks;
  Result<void> result;
  if (ending) result = for_all ? ending->wait_for_all() : ending->wait_for_own_work();
  for (const auto& one : endings) (void)(for_all ? one->wait_for_all() : one->wait_for_own_work());
  const auto begin = std::chrono::steady_clock::now();
  Endings late = late_of(endings, begin + (last ? grace : short_grace));
  if (!last && !late.empty() && !keep_for_last(late)) late = late_of(late, begin + grace);
  (void)late_of(earlier, begin + grace);
  for (const auto& one : endings) {
    const bool goes_on = std::ranges::find(late, one) != late.end();
    goes_on ? one->leave_behind() : one->join();
  }
  return result;
}

}  // namespace ccl::detail::nccl
