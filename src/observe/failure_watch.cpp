#include "comm/observe/failure_watch.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/base/biased_mutex.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/levels.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/exceptions.hpp"
#include "base/thread.hpp"
#include "comm/observe/ticker_list.hpp"
#include "comm/state.hpp"
#include "gpu/order/graph_resources.hpp"
#include "net/engine.hpp"

namespace ccl::detail {
namespace {

constexpr auto look_period = std::chrono::milliseconds{500};

// A raw pointer is enough, because `stop` removes it.
TickerList<FailureWatch*>& failure_watches() {
  static auto& of_process = *new TickerList<FailureWatch*>;
  return of_process;
}

/// The resources of a destroyed graph may be the last owners of a communicator, which then ends. It
/// is one of those that are looked at, also after its failure, so the ticker runs until then.
void bury_apart() noexcept {
  if (!graphs_have_gone()) return;
  auto thread =
      own_thread("destroyed graphs", [] { (void)completes([] { free_graph_resources(); }); });
  if (thread) thread->detach();
}

bool look_at_all() {
  BiasedMutex::prepare();  // on a thread that no call waits for
  bury_apart();
  for (FailureWatch* watch : failure_watches().items) watch->look();
  return failure_watches().goes_on();
}

/// True if a kernel has failed and no call has looked since.
bool kernel_failed(const CommState& state) {
  if (!state.device.gpu) return false;
  return HostMemory::load_acquire(&state.device.gpu->watched().lane_failure.peer) != 0;
}

bool has_failed(const CommState& state) {
  if (state.creation.running()) return false;  // its thread sends the failure
  if (state.failure_watch.is_paused()) return false;
  if (!state.status.ok() || kernel_failed(state)) return true;
  const auto parts = state.levels.current();
  const auto failed = [](const Communicator& level) {
    const auto of = Access::state(level);
    return !of->failure_watch.is_paused() && !of->status.ok();
  };
  return parts && (failed(parts->inner) || (parts->outer && failed(*parts->outer)) ||
                   (parts->head_rail && failed(*parts->head_rail)));
}

void send_failure(CommState& state) {
  const bool by_kernel = state.status.ok() && kernel_failed(state);
  (void)state.ready();  // takes over the failure of a kernel or a level
  auto well = state.status.result();
  if (well) return;
  Error error = std::move(well).error();
  if (by_kernel) log_warn(LogPart::coll, "{}", error.message());
  if (error.code == Errc::timed_out && !error.transport.empty()) {
    (void)state.rendezvous.late_connection(std::move(error));
  } else {
    state.rendezvous.fail_all(std::move(error));
  }
}

/// Sends it in a thread of its own, because it needs the engine's mutex and answers of other ranks.
bool send_apart(CommState& state) noexcept {
  const auto send = [](const std::weak_ptr<CommState>& weak) {
    const auto of = weak.lock();
    if (!of) return;
    const LogRank named{of->identity.rank()};
    if (!completes([&] { send_failure(*of); })) {
      of->rendezvous.fail_all(brief_error(Errc::out_of_memory));
    }
  };
  auto thread = own_thread("a failure", send, state.weak_from_this());
  if (thread) thread->detach();
  return thread.has_value();
}

}  // namespace

Result<void> FailureWatch::start() {
  const std::lock_guard lock{net::Engine::get().mutex()};
  CCL_CHECK(failure_watches().add(this, look_at_all, look_period));
  started_ = true;
  return {};
}

void FailureWatch::stop() noexcept {
  const std::lock_guard lock{net::Engine::get().mutex()};
  if (!started_) return;  // there may be no memory for the list
  if (std::erase(failure_watches().items, this) == 0) return;
  if (failure_watches().items.empty()) net::Engine::get().tick_soon();
}

void FailureWatch::look() noexcept {
  state_.departure.look();
  if (sent_) return;
  // One look later, so that both ends of a broken connection have their own errors.
  const bool before = std::exchange(failed_, has_failed(state_));
  if (!before || !failed_) return;
  const Bootstrap* const bootstrap = state_.rendezvous.bootstrap();
  const bool all_know = bootstrap == nullptr || bootstrap->has_failed();
  sent_ = (!state_.status.ok() && all_know) || send_apart(state_);
}

FailureWatch::Pause::Pause(CommState& state) : state_{state}, levels_{state.levels.current()} {
  count(1);
}

FailureWatch::Pause::~Pause() {
  count(-1);
}

void FailureWatch::Pause::count(int by) noexcept {
  state_.failure_watch.pauses_ += by;
  if (!levels_) return;
  Access::state(levels_->inner)->failure_watch.pauses_ += by;
  if (levels_->outer) Access::state(*levels_->outer)->failure_watch.pauses_ += by;
  if (levels_->head_rail) Access::state(*levels_->head_rail)->failure_watch.pauses_ += by;
}

}  // namespace ccl::detail
