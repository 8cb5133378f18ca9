#pragma once

#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/host_launch.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/wire/compiled_lanes.hpp>
#include <ccl/detail/wire/context.hpp>
#include <ccl/detail/wire/peers_of.hpp>
#include <ccl/detail/wire/registry.hpp>
#include <ccl/detail/wire/work.hpp>

#include <cstddef>
#include <memory>
#include <optional>
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
  work.column_of = tables.column_of;
  work.columns = tables.columns;
  work.rings = tables.rings;
  work.trees = tables.trees;
  work.hosts = tables.hosts;
  work.rank = connections.comm().rank();
  work.ranks = connections.comm().ranks();
  work.channels = plan.channels;
  work.slice_steps = plan.slice_steps;
  work.chunk_steps = plan.chunk_steps;
  work.slot_packets = int(plan.slot_bytes / Index{sizeof(Packet)});
  work.slot_count = plan.slot_count;
  work.proxied = tables.proxied;
  if (tables.cursors != nullptr) {
    work.sends.cursor = tables.cursors;
    work.recvs.cursor = tables.cursors + Index{plan.channels} * work.ranks;
  }
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
/// Parts of a composition over wires that its calls use, whatever they reduce. Values, so that the
/// compiled runtime has their code.
struct WirePaths {
  const PositionsOf& positions;
  Index slice_bytes;  // minimum of a slice on CPU lanes
  /// Runs CPU lanes; `given` points to the `CallArguments`. Null: on GPUs alone.
  void (*run)(const Connections& connections, const void* given);
};
/// These parts for calls with a reduction `R`.
template <class R>
struct WireParts : WirePaths {
  const WireLaunch<R>& kernels;  // null: the program has no device code for them
};

/// The whole work of a launch on a GPU, whose tables hold the trees of all roots.
template <class R>
WireWork<R> wire_work_on_device(const Connections& connections, const WireParts<R>& parts,
                                const CallArguments<R>& given) {
  WireWork<R> work = wire_work(connections, given.reduction, given);
  if (parts.positions.by_root) work.trees += Index{work.channels} * given.root;
  return work;
}

/// Connects, before a launch on CPU lanes, the wires that its root needs. Collective. Fails if a
/// slice cannot hold an element, because elements of a user may be large.
Result<void> connect_lanes(Connections& connections, const WirePaths& paths, int root);
/// Runs a call on CPU lanes. `given` as for `WirePaths::run`.
Result<void> run_on_host(QueuedCall&& call, const WirePaths& paths, int root, const void* given);
/// Runs a call without a stream on CPU lanes as a `ShortCall`. Returns nothing, and has done
/// nothing, if that may not begin.
std::optional<Result<void>> run_short(Connections& connections, const CallInfo& info,
                                      const WirePaths& paths, int root, const void* given);
/// Begins a launch on a GPU, with the wires that its root needs. Collective.
Result<Launch> begin_on_device(const std::shared_ptr<Connections>& connections,
                               const CallInfo& info, const PositionsOf& positions, int root,
                               Stream stream);

/// Runs the CPU lanes of a call.
template <class Op, class Algo, class Proto, class R>
void run_wires(const Connections& connections, const void* arguments) {
  const auto& given = *static_cast<const CallArguments<R>*>(arguments);
  using Lanes = on_cpu_lanes<Algo>;
  const R reduction = loaded(given.reduction);
  if constexpr (!has_compiled_lanes<Lanes, Proto, R>) {
    const WireWork<R> work = wire_work(connections, reduction, given);
    HostExecutor::run<SoloLane>(work.channels, WireBody<Op, Lanes, Proto, 1, R>{work});
  } else if constexpr (reduces<R>) {
    auto by_loops = host_reduction<max_sources<Lanes>>(reduction);
    run_compiled_lanes<Op, Lanes>(
        connections, CallArguments<decltype(by_loops)>{by_loops, given.input, given.output,
                                                       given.layout, given.root});
  } else {
    run_compiled_lanes<Op, Lanes>(connections, given);
  }
}

/// `cpus`: the composition runs on CPU lanes, too.
template <class Op, class Algo, class Proto, class R, bool cpus>
inline constexpr WireParts<R> wire_parts{
    {all_positions<Op, Algo>,
     [] {
       if constexpr (!cpus) {
         return Index{0};
       } else {
         return WireBody<Op, Algo, Proto, 1, R>::template min_slice_bytes<SoloLane>;
       }
     }(),
     [] {
       void (*run)(const Connections&, const void*) = nullptr;
       if constexpr (cpus) run = run_wires<Op, Algo, Proto, R>;
       return run;
     }()},
    WireKernels<Op, on_gpu_lanes<Algo>, Proto, R>::launch};

template <class R>
Result<void> launch_on_device(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                              const WireParts<R>& parts, const CallArguments<R>& given,
                              Stream stream) {
  if (parts.kernels == nullptr) return fail(no_device_code(*connections));
  if (given.layout.count == 0) return check_ready(connections->comm());  // so do all ranks
  CCL_TRY(Launch && launch,
          begin_on_device(connections, info, parts.positions, given.root, stream));
  return launch.finish(
      parts.kernels(wire_work_on_device(*connections, parts, given), launch.target()));
}

}  // namespace ccl::detail
