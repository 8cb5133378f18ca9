#pragma once

#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/host_launch.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/detail/multicast/prims.hpp>
#include <ccl/detail/multicast/registry.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <memory>
#include <utility>

namespace ccl::detail {

/// Returns the work of a launch over multicast memory.
template <class Op, class R>
MulticastWork<R> multicast_work(const Connections& connections, const R& reduction,
                                const CallArguments<R>& given) {
  const PeerMemory& memory = connections.peer_memory();
  MulticastWork<R> work{reduction};
  work.peers = memory.view();
  work.epoch = memory.epoch();
  work.all = memory.all();
  for (const int head : memory.heads()) work.add_head(head);
  work.layout = given.layout;
  work.root = given.root;
  // A GPU has as many as its blocks.
  int channels = connections.on_device() ? memory.max_channels() : connections.plan().channels;
  if (channels > Mailbox::max_rings) channels = Mailbox::max_rings;
  work.channels = work.blocks = channels;
  work.input = given.input;
  work.output = given.output;
  work.watch = connections.calls().watch;
  return work;
}

/// CPU lanes of a call over multicast memory.
template <class Op, class Algo, class Proto, class R>
struct MulticastLanes {
  using Body = MulticastBody<Op, Algo, Proto, UnicastMulticast<HostMemory>, 1, R>;

  /// Fails if the scratch has no tile for each rank.
  static Result<void> check(const Connections& connections, const CallArguments<R>& given) {
    const auto work = multicast_work<Op>(connections, given.reduction, given);
    if (Body::template max_elements<SoloLane>(work) > 0) return {};
    return fail(scratch_too_small(connections));
  }
  /// Runs the launches of a call; `arguments` points to its `CallArguments`.
  static void run(const Connections& connections, const void* arguments) {
    const auto& given = *static_cast<const CallArguments<R>*>(arguments);
    const auto whole = multicast_work<Op>(connections, loaded(given.reduction), given);
    const Index most = Body::template max_elements<SoloLane>(whole);
    const LaneFailure& failure = connections.calls().lane_failure;
    for (Index at = 0; at < whole.layout.count && failure.peer == 0; at += most) {
      const auto work = Body::part(whole, at, most);
      HostExecutor::run<SoloLane>(work.channels, Body{work});
    }
  }
};

/// Call over multicast memory that a group makes. On GPUs it is a launch of its own.
template <class Op, class Algo, class Proto, class R>
class MulticastCall final : public RecordedCall {
 public:
  MulticastCall(std::shared_ptr<Connections> connections, const CallInfo& info,
                const CallArguments<R>& given)
      : RecordedCall{std::move(connections), info}, given_{given} {}

  Result<void> connect() override {
    return MulticastLanes<Op, Algo, Proto, R>::check(connections(), given_);
  }
  void run_on_host(Launch&) override {
    if (given_.layout.count > 0) MulticastLanes<Op, Algo, Proto, R>::run(connections(), &given_);
  }

 private:
  CallArguments<R> given_;
};

/// Runs a call over multicast memory on CPU lanes, at once or after all earlier work of a stream.
template <class Op, class Algo, class Proto, class R>
Result<void> launch_multicast_on_host(const std::shared_ptr<Connections>& connections,
                                      const CallInfo& info, const CallArguments<R>& given,
                                      Stream stream) {
  using Lanes = MulticastLanes<Op, Algo, Proto, R>;
  if (given.layout.count == 0) return check_ready(connections->comm());  // so do all ranks
  CCL_CHECK(Lanes::check(*connections, given));
  return queue_on_host(connections, info, stream, [given](QueuedCall&& call) {
    return run_on_host(std::move(call), &Lanes::run, &given);
  });
}

/// Launches the kernels of a call over multicast memory: those of switches, or of its emulation.
template <class Op, class Algo, class Proto, class R>
Result<void> launch_multicast(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                              const CallArguments<R>& given, Stream stream) {
  using Emulated = MulticastKernels<Op, Algo, Proto, R>;
  using Switch = SwitchKernels<Op, Algo, Proto, R>;
  if constexpr (!requires { Algo::by_switches_alone; }) register_kernels<Emulated>();
  register_kernels<Switch>();
  const bool by_switches = connections->peer_memory().all() != 0;
  const auto launch_kernels = by_switches ? Switch::launch : Emulated::launch;
  const auto max_elements = by_switches ? Switch::max_elements : Emulated::max_elements;
  if (launch_kernels == nullptr) {
    return fail(by_switches ? no_switch_code(*connections) : no_device_code(*connections));
  }
  if (given.layout.count == 0) return check_ready(connections->comm());
  Launch::Lock lock{connections->calls().mutex};
  auto work = multicast_work<Op>(*connections, given.reduction, given);
  if (max_elements(work) < 1) return fail(scratch_too_small(*connections));
  CCL_TRY(Launch && launch, Launch::begin_on_device(connections, info, stream, std::move(lock)));
  work.watch = connections->calls().watch;  // with the ticket of this call
  return launch.finish(launch_kernels(work, launch.target()));
}

}  // namespace ccl::detail
