#include "nccl/device/signals.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>

#include "base/exceptions.hpp"
#include "comm/state.hpp"
#include "launch/failed_launch.hpp"

namespace ccl::detail::nccl {
namespace {

/// Wait of a CPU thread, which looks at the communicator and at the limit from time to time.
class HostWait {
 public:
  HostWait(const Communicator& comm, double limit_s) : comm_{comm}, limit_s_{limit_s} {}

  /// Returns true if the wait must go on; fails if the communicator has failed.
  Result<bool> pause() {
    if (++spins_ % 1000 != 0) {
      std::this_thread::yield();
      return true;
    }
    CCL_CHECK(comm_.status());
    std::this_thread::sleep_for(std::chrono::microseconds{50});
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin_;
    return limit_s_ <= 0 || waited.count() < limit_s_;
  }

 private:
  const Communicator& comm_;
  double limit_s_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::uint64_t spins_ = 0;
};

}  // namespace

Result<std::shared_ptr<Signals>> Signals::create(const Communicator& comm, int contexts,
                                                 int signals) {
  const Index counters = Index{contexts} * signals * comm.ranks();
  const Index bytes = (2 * counters + 1) * Index{sizeof(std::uint64_t)};
  const auto loaded = comm.device() >= 0 ? load_signals_on_gpu() : Result<void>{};
  auto memory = SharedMemory::allocate(comm, bytes);
  if (!loaded || !memory) {
    (void)Window::create(comm, nullptr, bytes);  // so that no rank waits: it fails on all
    return fail(loaded ? std::move(memory).error() : loaded.error());
  }
  CCL_TRY(auto window, Window::create(comm, *memory));
  return std::shared_ptr<Signals>{
      new Signals{comm, *std::move(memory), std::move(window), contexts, signals}};
}

Result<void> Signals::check(const SignalPlace& place) const {
  const auto in = [](const char* what, int value, int count) -> Result<void> {
    if (value >= 0 && value < count) return {};
    return fail(Errc::invalid_argument,
                count == 0 ? fmt::format("{} is {}; the communicator has none", what, value)
                           : fmt::format("{} is {}; there are 0 to {}", what, value, count - 1));
  };
  CCL_CHECK(in("peer", place.peer, comm_.ranks()));
  CCL_CHECK(in("sigIdx", place.signal, signals_));
  return in("ctx", place.context, contexts_);
}

std::uint64_t* Signals::counter(int at, int source, const SignalPlace& place) const {
  const auto row = std::size_t(place.context * signals_ + place.signal);
  return window_.of<std::uint64_t>(at).data() + row * std::size_t(comm_.ranks()) + source;
}

std::uint64_t* Signals::ended() const {
  return window_.of<std::uint64_t>(comm_.rank()).data() + 2 * count();
}

template <class Work>
Result<void> Signals::queue(cudaStream_t stream, Work&& work) {
  CommState& state = *Access::state(comm_);
  CCL_CHECK(state.ready());
  GpuOrder& order = *state.device.order;
  if (auto begun = order.before(stream, shared_from_this()); !begun) {
    return fail(fail_peers(state, stream, std::move(begun).error()));
  }
  Result<void> done = without_exceptions([&]() -> Result<void> { return work(); });
  if (!done && order.captures(stream)) {  // before anything ran
    order.give_up();
    return done;
  }
  // The blocks of a put wait for nobody, so one counts for all.
  if (LaunchShare* const share = order.share(); done && share != nullptr) share->take_alone(1);
  Result<void> marked = order.after(stream);  // some of it may run after a failure, too
  if (done) done = std::move(marked);
  if (done) return done;
  return fail(fail_peers(state, stream, std::move(done).error()));
}

Result<void> Signals::put(void* to, const void* from, std::size_t bytes, const SignalPlace& place,
                          cudaStream_t stream) {
  if (comm_.device() < 0) {
    if (bytes > 0) std::memmove(to, from, bytes);
    return send(place, stream);
  }
  if (bytes == 0) return send(place, stream);
  return queue(stream, [&] {
    return put_on_gpu(to, from, bytes, counter(place.peer, comm_.rank(), place), ended(), stream);
  });
}

Result<void> Signals::send(const SignalPlace& place, cudaStream_t stream) {
  std::uint64_t* const theirs = counter(place.peer, comm_.rank(), place);
  if (comm_.device() >= 0) {
    return queue(stream, [&] { return signal_on_gpu(theirs, stream); });
  }
  std::atomic_ref{*theirs}.fetch_add(1, std::memory_order_release);
  return {};
}

Result<void> Signals::wait(const SignalPlace& place, std::uint64_t times, cudaStream_t stream) {
  if (comm_.device() < 0) return wait_on_host(place, times);
  std::uint64_t* const mine = counter(comm_.rank(), place.peer, place);
  const CommState& state = *Access::state(comm_);
  Watched& watched = state.device.gpu->watched();
  const AbortWatch watch{.stop = &watched.stop,
                         .lane_failure = &watched.lane_failure,
                         .deadline_ns = Word(state.limits.timeout_s * 1e9),
                         .waits = &watched.program_waits};
  return queue(stream,
               [&] { return wait_on_gpu(mine, mine + count(), times, place.peer, watch, stream); });
}

Result<void> Signals::wait_on_host(const SignalPlace& place, std::uint64_t times) const {
  std::uint64_t* const mine = counter(comm_.rank(), place.peer, place);
  std::uint64_t& taken = mine[count()];
  CCL_TRY(const double limit_s, setting_seconds("TIMEOUT"));
  HostWait waiting{comm_, limit_s};
  const auto state = Access::state(comm_);
  for (;;) {
    const bool departed = state->status.has_departed(place.peer);  // it sends no more
    const auto came = std::atomic_ref{*mine}.load(std::memory_order_acquire) - taken;
    if (came >= times) break;
    if (departed) state->rendezvous.lose_departed(place.peer);
    CCL_TRY(const bool goes_on, waiting.pause());
    if (goes_on) continue;
    Error error{Errc::timed_out,
                fmt::format("{} of {} signals came from rank {} within {} s (sigIdx {}, ctx {}); "
                            "does it call ncclSignal or ncclPutSignal as often?",
                            came, times, place.peer, limit_s, place.signal, place.context)};
    error.rank = comm_.rank();
    error.peer = place.peer;
    return fail(std::move(error));
  }
  taken += times;
  return {};
}

}  // namespace ccl::detail::nccl
