#pragma once

#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/host_launch.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/detail/multicast/body.hpp>
#include <ccl/detail/multicast/registry.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <memory>
#include <string>
#include <utility>

namespace ccl::detail {

/// Places of a call's buffers. They are found while the program makes the call, because ranks
/// create and close windows between calls, and a stream may run the call later.
struct WindowCall {
  bool asks = false;  // the launch asks all ranks for their places; the same on all
  BoundPlace send, recv;
};
/// Bytes of a call's buffers that multicast reaches if they lie in windows. 0: it copies them.
struct BoundBytes {
  Index send = 0, recv = 0;
};
/// A switch moves whole packets. Lanes scale before it adds, so some sums need copies.
template <class Op, class R>
BoundBytes bound_bytes(int ranks, const Layout& layout) {
  constexpr Index size = sizeof(typename R::Type), packet = sizeof(Packet);
  const auto span = [&](Index stride) { return ((ranks - 1) * stride + layout.count) * size; };
  const auto whole = [](Index elements) { return elements * size % packet == 0; };
  BoundBytes bytes;
  if (!whole(layout.count) || !whole(layout.in_stride) || !whole(layout.out_stride)) return bytes;
  if constexpr (!is_one_of<Op, AllGather> && !prepares<R>()) bytes.send = span(layout.in_stride);
  if constexpr (!is_one_of<Op, ReduceScatter>) bytes.recv = span(layout.out_stride);
  if constexpr (is_one_of<Op, AllReduce>) {
    if (bytes.send > 0) bytes.send = layout.count * size;
    bytes.recv = layout.count * size;
  }
  return bytes;
}
template <class Op, class Algo, class R>
WindowCall window_call(const Connections& connections, const CallArguments<R>& given) {
  WindowCall found;
  if constexpr (BindsWindows<Op, Algo>) {
    const PeerMemory& memory = connections.peer_memory();
    found.asks = memory.binds_windows();
    if (!found.asks) return found;
    const BoundBytes bytes = bound_bytes<Op, R>(connections.comm().ranks(), given.layout);
    if (bytes.send > 0) found.send = memory.bound(given.input, bytes.send);
    if (bytes.recv > 0) found.recv = memory.bound(given.output, bytes.recv);
  }
  return found;
}
/// Returns how a call would reach its buffers, in a sentence.
template <class Op, class Algo, class R>
std::string explain_windows(const Connections& connections, const void* send, const void* recv,
                            const Layout& layout) {
  if constexpr (!BindsWindows<Op, Algo>) {
    return "copies send and recv (this operation does not use windows)";
  } else {
    const PeerMemory& memory = connections.peer_memory();
    const BoundBytes bytes = bound_bytes<Op, R>(connections.comm().ranks(), layout);
    constexpr Index size = sizeof(typename R::Type);
    const auto side = [&](const char* straight, const char* copied, const char* name, Index of,
                          const void* data, bool prepared) {
      std::string text;
      if (prepared) return text + copied + name + " (each rank scales its data before the sum)";
      if (of == 0) {
        return text + copied + name + " (" + std::to_string(layout.count * size) +
               " bytes are no multiple of 16)";
      }
      const bool reached = memory.bound(data, of).place > WindowPlaceWord::in_no_window;
      return text + (reached ? straight : copied) + name + " (" + memory.where(data, of) + ")";
    };
    std::string text;
    if constexpr (!is_one_of<Op, AllGather>) {
      text = side("loads straight from ", "copies ", "send", bytes.send, send, prepares<R>());
    }
    if constexpr (!is_one_of<Op, ReduceScatter>) {
      if (!text.empty()) text += ", ";
      text += side("stores straight into ", "copies to ", "recv", bytes.recv, recv, false);
    }
    return text + "; buffers at another place on some rank are copied on all";
  }
}

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

/// Returns the way of the latest launch in words.
Result<std::string> taken_way(const Connections& connections);

inline void set_window(BoundBuffer& to, const BoundPlace& from, const PeerView& peers) {
  to.place = from.place;
  to.windows.set_table(from.each);
  to.windows.rank = peers.rank;
  to.windows.ranks = peers.ranks;
  to.all = from.all;
  to.packet = from.offset / Index{sizeof(Packet)};
}
/// Gives a launch the places of its buffers.
template <class R>
void set_windows(MulticastWork<R>& work, const Connections& connections, const WindowCall& call) {
  set_window(work.send, call.send, work.peers);
  set_window(work.recv, call.recv, work.peers);
  work.taken = connections.peer_memory().taken();
}

/// Arguments of a call on CPU lanes.
template <class R>
struct MulticastArguments {
  CallArguments<R> given;
  WindowCall windows;
};

/// CPU lanes of a call over multicast memory.
template <class Op, class Algo, class Proto, class R>
struct MulticastLanes {
  using InWindows =
      MulticastBody<Op, Algo, Proto, UnicastMulticast<HostMemory>, 1, R, WindowBuffers>;
  using Body = MulticastBody<Op, Algo, Proto, UnicastMulticast<HostMemory>, 1, R>;

  /// Fails if the scratch has no tile for each rank.
  static Result<void> check(const Connections& connections, const CallArguments<R>& given) {
    const auto work = multicast_work<Op>(connections, given.reduction, given);
    if (Body::template max_elements<SoloLane>(work) > 0) return {};
    return fail(scratch_too_small(connections));
  }
  /// Runs the launches of a call; `arguments` points to its `MulticastArguments`.
  static void run(const Connections& connections, const void* arguments) {
    const auto& [given, windows] = *static_cast<const MulticastArguments<R>*>(arguments);
    auto whole = multicast_work<Op>(connections, loaded(given.reduction), given);
    const Index most = Body::template max_elements<SoloLane>(whole);
    if constexpr (BindsWindows<Op, Algo>) {
      if (windows.asks) {
        set_windows(whole, connections, windows);
        InWindows::template divide<SoloLane>(whole);
        HostExecutor::run<SoloLane>(whole.channels, InWindows{whole});
        return;
      }
    }
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
      : RecordedCall{std::move(connections), info},
        call_{given, window_call<Op, Algo>(this->connections(), given)} {}

  Result<void> connect() override {
    return MulticastLanes<Op, Algo, Proto, R>::check(connections(), call_.given);
  }
  void run_on_host(Launch&) override {
    if (call_.given.layout.count > 0) {
      MulticastLanes<Op, Algo, Proto, R>::run(connections(), &call_);
    }
  }

 private:
  MulticastArguments<R> call_;
};

/// Runs a call over multicast memory on CPU lanes, at once or after all earlier work of a stream.
template <class Op, class Algo, class Proto, class R>
Result<void> launch_multicast_on_host(const std::shared_ptr<Connections>& connections,
                                      const CallInfo& info, const CallArguments<R>& given,
                                      Stream stream) {
  using Lanes = MulticastLanes<Op, Algo, Proto, R>;
  if (given.layout.count == 0) return check_ready(connections->comm());  // so do all ranks
  CCL_CHECK(Lanes::check(*connections, given));
  const MulticastArguments<R> made{given, window_call<Op, Algo>(*connections, given)};
  return queue_on_host(connections, info, stream, [made](QueuedCall&& call) {
    return run_on_host(std::move(call), &Lanes::run, &made);
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
  const auto in_windows = by_switches ? Switch::launch_in_windows : Emulated::launch_in_windows;
  if (launch_kernels == nullptr) {
    return fail(by_switches ? no_switch_code(*connections) : no_device_code(*connections));
  }
  if (given.layout.count == 0) return check_ready(connections->comm());
  Launch::Lock lock{connections->calls().mutex};
  auto work = multicast_work<Op>(*connections, given.reduction, given);
  if (max_elements(work) < 1) return fail(scratch_too_small(*connections));
  const WindowCall windows = window_call<Op, Algo>(*connections, given);
  const bool asks = windows.asks && in_windows != nullptr;
  std::shared_ptr<void> keep;
  if (asks) {
    set_windows(work, *connections, windows);
    keep =
        std::make_shared<std::pair<std::shared_ptr<Connections>, WindowCall>>(connections, windows);
  }
  CCL_TRY(Launch && launch,
          Launch::begin_on_device(connections, info, stream, std::move(lock), std::move(keep)));
  work.watch = connections->calls().watch;  // with the ticket of this call
  return launch.finish((asks ? in_windows : launch_kernels)(work, launch.target()));
}

}  // namespace ccl::detail
