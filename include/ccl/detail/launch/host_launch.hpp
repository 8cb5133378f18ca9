#pragma once

#include <ccl/comm/stream.hpp>
#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/launch/in_flight.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

namespace ccl::detail {

/// Runs `call` at once or, given a stream, after all earlier work of that stream. The call must
/// need no other rank.
template <class F>
Result<void> queue_on_host(const Connections& connections, Stream stream, F call) {
  CCL_CHECK(check_on_host(connections, stream));
  if (stream.host() == nullptr) return call();
  stream.host()->enqueue(
      [held = in_flight(connections.comm()), call = std::move(call)] { return call(); });
  return {};
}
/// Runs `call`, which points to an object of a type that the compiled runtime does not know.
using RunQueued = Result<void> (*)(void* call, QueuedCall&& queued);
template <class F>
Result<void> run_queued(void* call, QueuedCall&& queued) {
  return (*static_cast<F*>(call))(std::move(queued));
}
/// Records a call as queued and runs it when all earlier calls of the composition have ended, on
/// any stream.
Result<void> run_in_turn(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                         RunQueued run, void* call);
/// Runs a recorded call that has taken a turn. An exception becomes an error of all ranks.
Result<void> run_in_turn(const std::shared_ptr<Connections>& connections, QueuedCall&& queued,
                         Word turn, RunQueued run, void* call);

/// Runs a recorded call on CPU lanes that use no wires. `given` points to the arguments for `run`.
Result<void> run_on_host(QueuedCall&& queued, void (*run)(const Connections&, const void* given),
                         const void* given);

/// Call of a composition in the queue of a stream, with its turn among the composition's calls.
template <class F>
struct CallInTurn {
  std::shared_ptr<void> held;
  std::shared_ptr<Connections> connections;
  QueuedCall queued;
  F call;
  Word number = 0;
  Result<void> operator()() {
    return run_in_turn(connections, std::move(queued), number, run_queued<F>, &call);
  }
};
/// Records a call as queued and runs `call(QueuedCall)` when all earlier calls of the composition
/// have ended. `stream` has no queue.
template <class F>
Result<void> run_on_host_now(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                             Stream stream, F& call) {
  CCL_CHECK(check_on_host(*connections, stream));
  return run_in_turn(connections, info, run_queued<F>, &call);
}
/// Records a call as queued and runs `call(QueuedCall)` at once or, given a stream, after all
/// earlier work of that stream. All earlier calls of the composition run first, on any stream.
template <class F>
Result<void> queue_on_host(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                           Stream stream, F call) {
  if (stream.host() == nullptr) return run_on_host_now(connections, info, stream, call);
  CCL_CHECK(check_on_host(*connections, stream));
  CallSequencer& sequencer = connections->calls().sequencer;
  const std::lock_guard lock{sequencer.mutex()};
  auto in_turn = host_call(CallInTurn<F>{in_flight(connections->comm()), connections,
                                         QueuedCall{connections, info}, std::move(call)});
  in_turn->call.number = sequencer.take();  // nothing fails after this
  HostQueue::push(*stream.host(), std::move(in_turn));
  return {};
}

/// Reads a scalar that lies in memory, once for each launch.
template <class R>
R loaded(const R& reduction) {
  if constexpr (reduces<R>) return reduction.load();
  return reduction;
}

/// Copies a rank's own data through the reduction's prologue and epilogue. A communicator of one
/// rank does nothing else.
template <class R>
void alone(const R& reduction, const void* input, void* output, Index count) {
  if constexpr (reduces<R>) {
    if (count > 0) reduce_bulk<R, 0, true>(reduction, output, input, nullptr, count);
  } else if (input != output && count > 0) {
    std::memmove(output, input, size_t(count));
  }
}

}  // namespace ccl::detail
