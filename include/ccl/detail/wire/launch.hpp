#pragma once

#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/host_launch.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/wire/context.hpp>
#include <ccl/detail/wire/peers_of.hpp>
#include <ccl/detail/wire/registry.hpp>
#include <ccl/detail/wire/work.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace ccl::detail {

/// Work of a launch over the wires of `connections`, without the arguments of a call.
template <class R>
WireWork<R> wire_work(const Connections& connections, const R& reduction) {
  const WireTables& tables = connections.tables();
  const Plan& plan = connections.plan();
  WireWork<R> work{reduction};
  work.in = tables.in;
  work.out = tables.out;
  work.rings = tables.rings;
  work.trees = tables.trees;
  work.rank = connections.comm().rank();
  work.ranks = connections.comm().ranks();
  work.channels = plan.channels;
  work.slice_steps = plan.slice_steps;
  work.chunk_steps = plan.chunk_steps;
  work.slot_bytes = int(plan.slot_bytes);
  work.proxied = tables.proxied;
  work.sends.cursor = tables.cursors;
  work.recvs.cursor = tables.cursors + Index{plan.channels} * work.ranks;
  work.watch = connections.calls().watch;
  return work;
}
/// The whole work of a launch on CPU lanes.
template <class R>
WireWork<R> wire_work(const Connections& connections, const R& reduction,
                      const CallArguments<R>& given) {
  WireWork<R> work = wire_work(connections, reduction);
  work.root = given.root;
  work.layout = given.layout;
  work.input = given.input;
  work.output = given.output;
  return work;
}
/// The whole work of a launch on a GPU, whose tables hold the trees of all roots.
template <class Op, class Algo, class R>
WireWork<R> wire_work_on_device(const Connections& connections, const CallArguments<R>& given) {
  WireWork<R> work = wire_work(connections, given.reduction, given);
  if (wires_by_root<Op, Algo>) work.trees += Index{work.channels} * given.root;
  return work;
}

/// Fails if a slice cannot hold an element, because elements of a user may be large.
template <class Op, class Algo, class Proto, class R>
Result<void> check_slices_on_host(const Connections& connections) {
  constexpr Index needed = WireBody<Op, Algo, Proto, 1, R>::template min_slice_bytes<SoloLane>;
  if (connections.plan().slot_bytes * connections.plan().slice_steps >= needed) return {};
  return fail(slices_too_small(connections, needed));
}

/// Runs the CPU lanes of a call.
template <class Op, class Algo, class Proto, class R>
void run_wires(const Connections& connections, const CallArguments<R>& given) {
  const WireWork<R> work = wire_work(connections, loaded(given.reduction), given);
  HostExecutor::run<SoloLane>(work.channels, WireBody<Op, Algo, Proto, 1, R>{work});
}

template <class Op, class Algo, class Proto, class R>
Result<void> run_on_host(QueuedCall&& call, const CallArguments<R>& given) {
  CCL_TRY(Launch && launch, Launch::begin(std::move(call)));
  Connections& connections = launch.connections();
  CCL_CHECK((check_slices_on_host<Op, Algo, Proto, R>(connections)));
  CCL_CHECK((connect_wanted<Op, Algo>(connections, given.root)));
  launch.help_proxy();
  run_wires<Op, Algo, Proto>(connections, given);
  return launch.finish();
}

template <class Op, class Algo, class Proto, class R>
Result<void> launch_on_device(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                              const CallArguments<R>& given, Stream stream) {
  const auto kernels = WireKernels<Op, Algo, Proto, R>::launch;
  if (kernels == nullptr) return fail(no_device_code(*connections));
  if (given.layout.count == 0) return check_ready(connections->comm());  // so do all ranks
  Launch::Lock lock{connections->calls().mutex};
  if (wires_by_root<Op, Algo> && !connections->positions().connected[std::size_t(given.root)]) {
    CCL_CHECK(connect_positions(*connections, positions_of<Op, Algo>(), given.root));
  }
  CCL_TRY(Launch && launch, Launch::begin_on_device(connections, info, stream, std::move(lock)));
  return launch.finish(
      kernels(wire_work_on_device<Op, Algo>(*connections, given), launch.target()));
}

}  // namespace ccl::detail
