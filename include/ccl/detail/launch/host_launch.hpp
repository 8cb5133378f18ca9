#pragma once

#include <ccl/comm/stream.hpp>
#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/in_flight.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/wire/context.hpp>
#include <ccl/detail/wire/peers_of.hpp>

#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

namespace ccl::detail {

inline Result<void> check_on_host(const Connections& connections, Stream stream) {
  CCL_CHECK(connections.ready());
  if (stream.cuda() != nullptr) return fail(connections.not_on_device());
  return {};
}

/// Runs now or, given a stream, when everything before it there has run.
template <class F>
Result<void> queue_on_host(const Connections& connections, Stream stream, F call) {
  CCL_CHECK(check_on_host(connections, stream));
  if (stream.host() == nullptr) return call();
  stream.host()->enqueue(
      [held = in_flight(connections.comm()), call = std::move(call)] { return call(); });
  return {};
}
/// The same of `call(connections, info)`, an operation that the journal keeps, unless it is
/// refused. It also waits for all calls of these links that were made before, on whatever stream.
template <class F>
Result<void> queue_on_host(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                           Stream stream, F call) {
  CCL_CHECK(check_on_host(*connections, stream));
  if (stream.host() == nullptr) {
    const auto recorded = connections->recorded(info);
    const CallTicket turn{connections->sequencer()};
    return call(*connections, recorded);
  }
  const std::lock_guard lock{connections->sequencer().mutex()};
  stream.host()->enqueue([held = in_flight(connections->comm()), connections,
                          recorded = connections->recorded(info), call = std::move(call),
                          number = connections->sequencer().take()] {
    const CallTicket turn{connections->sequencer(), number};
    return call(*connections, recorded);
  });
  return {};
}

/// A scalar that lies in memory is read once per launch.
template <class R>
R loaded(const R& reduction) {
  if constexpr (reduces<R>) return reduction.load();
  return reduction;
}

/// Elements of a user may be larger than a slice.
template <class Op, class Algo, class Proto, class R>
Result<void> check_slices_on_host(const Connections& connections) {
  constexpr Index needed = WireBody<Op, Algo, Proto, 1, R>::template min_slice_bytes<SoloLane>;
  if (connections.plan().slot_bytes * connections.plan().slice_steps >= needed) return {};
  return fail(connections.slices_too_small(needed));
}

/// Between `Connections::help` and `Connections::finish`.
template <class Op, class Algo, class Proto, class R>
void run_wires(Connections& connections, const CallArguments<R>& given) {
  auto work = connections.work(loaded(given.reduction));
  given.tell(work);
  HostExecutor::run<SoloLane>(work.channels, WireBody<Op, Algo, Proto, 1, R>{work});
}

template <class Op, class Algo, class Proto, class R>
Result<void> run_on_host(Connections& connections, const CallInfo& info,
                         const CallArguments<R>& given) {
  const std::lock_guard lock{connections.mutex()};
  CCL_CHECK(connections.begin(info));
  Result<void> able = check_slices_on_host<Op, Algo, Proto, R>(connections);
  if (able) able = connect_wanted<Op, Algo>(connections, given.root);
  if (!able) {
    connections.give_up(info);
    return able;
  }
  connections.help();
  run_wires<Op, Algo, Proto>(connections, given);
  return connections.finish();
}

/// Copies a rank's own data through the reduction's prologue and epilogue: all that a communicator
/// of one rank has to do.
template <class R>
void alone(const R& reduction, const void* input, void* output, Index count) {
  if constexpr (reduces<R>) {
    if (count > 0) reduce_bulk<R, 0, true>(reduction, output, input, nullptr, count);
  } else if (input != output && count > 0) {
    std::memmove(output, input, size_t(count));
  }
}

}  // namespace ccl::detail
