#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/detail/base/handle.hpp>
#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/compose/check_protocol.hpp>
#include <ccl/detail/compose/creation.hpp>
#include <ccl/detail/copy/exchange.hpp>
#include <ccl/detail/copy/reduce.hpp>
#include <ccl/detail/exchange/over_peers.hpp>
#include <ccl/detail/exchange/over_wires.hpp>
#include <ccl/detail/launch/arguments.hpp>
#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/device_launch.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/host_launch.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/detail/multicast/check.hpp>
#include <ccl/detail/multicast/launch.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/detail/peer/call.hpp>
#include <ccl/detail/peer/direct_launch.hpp>
#include <ccl/detail/peer/registry.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/wire/call.hpp>
#include <ccl/detail/wire/peers_of.hpp>
#include <ccl/detail/wire/registry.hpp>
#include <ccl/transport/for_device.hpp>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace ccl::detail {

/// Ways that a call with a reduction `R` takes. Values, so that the code of a call is instantiated
/// by `R` alone.
template <class R>
struct CallPaths {
  bool rooted, over_peers;
  std::unique_ptr<RecordedCall> (*record)(const std::shared_ptr<Connections>&, const CallInfo&,
                                          const CallArguments<R>&);
  Result<void> (*on_gpu)(const std::shared_ptr<Connections>&, const CallInfo&,
                         const CallArguments<R>&, Stream) = nullptr;
  const WireParts<R>* on_cpu = nullptr;
  /// Runs a call on CPU lanes without wires.
  Result<void> (*over_memory)(const std::shared_ptr<Connections>&, const CallInfo&,
                              const CallArguments<R>&, Stream) = nullptr;
};
template <class R>
Result<void> launch_call(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                         const CallArguments<R>& given, Stream stream, const CallPaths<R>& paths) {
  const bool on_device = connections->on_device();
  if constexpr (constexpr int align = int(alignof(typename R::Type)); align > 1) {
    const bool has_output = !paths.rooted || connections->comm().rank() == given.root;
    if (on_device) {
      CCL_CHECK(check_aligned(connections->comm(), given.input, has_output ? given.output : nullptr,
                              align < 16 ? align : 16));
    }
  }
  if (stream.recorder() != nullptr) {
    stream.recorder()->call = paths.record(connections, info, given);
    return {};
  }
  if (paths.over_memory != nullptr && !on_device) {
    return paths.over_memory(connections, info, given, stream);
  }
  if (paths.on_gpu != nullptr && (paths.over_peers || on_device)) {
    return paths.on_gpu(connections, info, given, stream);
  }
  if (paths.on_cpu != nullptr) {
    if (stream.host() == nullptr && stream.cuda() == nullptr) {
      if (auto ran = run_short(*connections, info, *paths.on_cpu, given.root, &given)) {
        return *std::move(ran);
      }
    }
    return queue_on_host(connections, info, stream,
                         [given, parts = paths.on_cpu](QueuedCall&& call) {
                           return run_on_host(std::move(call), *parts, given.root, &given);
                         });
  }
  return fail(no_device_code(*connections));  // not reached: `make_connections` refused
}

// Data without a type is moved by the runtime.
extern template Result<void> launch_call(const std::shared_ptr<Connections>&, const CallInfo&,
                                         const CallArguments<Bytes>&, Stream,
                                         const CallPaths<Bytes>&);
extern template Result<void> run_alone(const std::shared_ptr<Connections>&, const Bytes&,
                                       const void*, void*, Index, Stream);
extern template Result<void> launch_on_device(const std::shared_ptr<Connections>&, const CallInfo&,
                                              const WireParts<Bytes>&, const CallArguments<Bytes>&,
                                              Stream);
extern template Result<void> launch_over_peers(
    const std::shared_ptr<Connections>&, const CallInfo&, const CallArguments<Bytes>&, Stream,
    int (*)(const PeerWork<Bytes>&, const DeviceTarget&), Index (*)(const PeerWork<Bytes>&),
    PeerWork<Bytes> (*)(const Connections&, const CallArguments<Bytes>&));
extern template class AnyWireCall<Bytes>;

/// Base of every composition. All copies share its connections.
template <class Op, class Algo, class Proto, ExecSpaces sides>
class Composition {
 public:
  /// Plan of all calls of this composition.
  const Plan& plan() const { return connections_->plan(); }
  /// Name of the composition: "all_reduce/Ring/LL128/shm".
  const std::string& name() const { return connections_->name(); }
  /// Number among the communicator's compositions, in order of creation.
  int number() const { return connections_->number(); }
  int ranks() const { return connections_->comm().ranks(); }
  /// Returns how a call of this rank reaches its buffers over multicast memory, and why: "loads
  /// straight from send (at offset 0 of window 1), copies to recv (in no window); ...". All ranks
  /// take the same way. `F`: functor of a reduction.
  template <class F = Sum, class T>
    requires Multicasts<Algo>
  std::string explain(const T* send, const T* recv, Index count) const {
    if (ranks() == 1) return "a rank alone only copies";
    constexpr bool is_sum = is_one_of<Op, AllReduce>, gathers = is_one_of<Op, AllGather>;
    const Index bytes = Op::reduces ? count : count * Index{sizeof(T)};
    const Layout layout{bytes, is_one_of<Op, ReduceScatter> ? bytes : 0, gathers ? bytes : 0,
                        is_sum};
    using R = cuda::std::conditional_t<Op::reduces, Reduction<F, T>, Bytes>;
    return explain_windows<Op, Algo, R>(*connections_, send, recv, layout);
  }
  /// Returns how the latest launch reached its buffers: "loaded from windows, stored to windows",
  /// "copied". On a GPU, the call must have completed.
  Result<std::string> latest_way() const
    requires Multicasts<Algo>
  {
    return taken_way(*connections_);
  }

 protected:
  using Algorithm = Algo;
  using Protocol = Proto;
  static constexpr ExecSpaces exec_sides = sides;
  static constexpr bool exchanges = Exchanges<Op, Algo>;
  template <class Acc, class T, class F>
  using ReductionOf =
      Reduction<F, T, cuda::std::conditional_t<cuda::std::is_void_v<Acc>, accumulate_t<T>, Acc>>;

  explicit Composition(std::shared_ptr<Connections> connections)
      : connections_{std::move(connections)} {}
  Composition() = default;  // equal to a moved-from handle

  /// Creates the connections. Collective. `late`: on CPU ranks, wires wait for the first call.
  template <Transport T>
  static Result<std::shared_ptr<Connections>> make_connections(const Communicator& comm,
                                                               std::optional<Plan> plan,
                                                               bool late = false) {
    return detail::make_connections(description<T>(), comm, std::move(plan), late);
  }
  template <Transport T>
  static const Composed& description() {
    static_cast<void>(&known_algorithm<Algo>);
    static_cast<void>(&known_protocol<Proto>);
    static const Composed of = composed<Op, Algo, Proto, T>();  // known to the compiler
    return of;
  }

  /// Runs a call at once or, given a stream, after all earlier work of that stream. A group records
  /// the call instead.
  template <class R>
  Result<void> launch(const CallInfo& info, const R& reduction, const void* input, void* output,
                      const Layout& layout, int root, Stream stream) const {
    const CallArguments<R> given{reduction, input, output, layout, root};
    static constexpr CallPaths<R> paths = paths_of<R>();
    return launch_call(connections_, info, given, stream, paths);
  }

  // Functions that a `Call` runs. It has checked their arguments.
  const Communicator& comm() const { return connections_->comm(); }
  template <class Acc, class T, class F>
  Result<void> reduce(const T* send, T* recv, Index count, F op, int root, const Layout& layout,
                      Stream stream) const {
    using R = ReductionOf<Acc, T, F>;
    static_assert(!Algo::reorders || R::commutative,
                  "ccl: this algorithm reduces the ranks in an order of its own, and the functor "
                  "says that it is not commutative");
    static_assert(algorithm_takes<Algo, F>(),
                  "ccl: this algorithm cannot run this reduction; see `supports_reduction` in its "
                  "header");
    static_assert(protocol_carries<Proto, F, T>(),
                  "ccl: this protocol cannot carry this reduction of these elements; see "
                  "`supports_reduction` in its header");
    static_assert(network_knows<Algo, T>,
                  "ccl: networks that reduce know the element types of NCCL alone (integers of 8, "
                  "32 and 64 bits, half, bfloat16, float, double, fp8); use Ring or Tree");
    if constexpr (Multicasts<Algo>) {
      static_assert(check_switch_op<F, T, typename R::Accumulate>());
    }
    const R reduction{op, ranks()};
    if constexpr (ReducesInNetwork<Algo>) {
      CCL_CHECK(connections_->check_network(network_tag<R>));
    }
    if (ranks() == 1) return reduce_alone(reduction, send, recv, count, stream);
    const auto info = call_info<T>(Op::name, count, Op::rooted ? root : -1, redop_label(op));
    return launch(info, reduction, send, recv, layout, root, stream);
  }
  /// Moves data. `layout` is in bytes.
  Result<void> move(const CallInfo& info, const void* send, void* recv, const Layout& layout,
                    int root, Stream stream) const {
    if (ranks() == 1) return move_alone(send, recv, layout.count, stream);
    return launch(info, Bytes{}, send, recv, layout, root, stream);
  }
  Result<void> exchange(const CallInfo& info, MessageTable&& table, Stream stream) const {
    if constexpr (MovesByCopies<Algo>) {
      return exchange_by_copies<Op, Algo>(connections_, info, table, stream);
    } else if constexpr (OverPeers<Algo>) {
      return exchange_over_peers<Op, Algo, Proto>(connections_, info, std::move(table), stream);
    } else {
      return detail::exchange<Op, Algo, Proto, sides>(connections_, info, std::move(table), stream);
    }
  }
  /// Counts a call of all ranks that this rank makes by another composition, in place of this one
  /// that writes windows.
  template <class T>
  Result<void> pass_by(Stream stream) const {
    if constexpr (MovesByCopies<Algo>) {
      return pass_by_copies<Algo>(connections_, call_info<T>(Op::name, 0, -1), stream);
    } else {
      return {};
    }
  }
  Result<void> send_recv(std::span<const P2pOp> p2p_ops, Stream stream, Overlaps overlaps) const {
    CCL_TRY(MessageTable && table, table_of(comm(), p2p_ops, overlaps));
    return exchange(call_info<char>(Op::name, -1, -1), std::move(table), stream);
  }

  /// Reduces, or moves, the data of the only rank.
  template <class R>
  Result<void> reduce_alone(const R& reduction, const void* in, void* out, Index count,
                            Stream stream) const {
    return run_alone(connections_, reduction, in, out, count, stream);
  }
  Result<void> move_alone(const void* from, void* to, Index bytes, Stream stream) const {
    return run_alone(connections_, Bytes{}, from, to, bytes, stream);
  }

  Handle<Connections, Connections::moved_from> connections_;

 private:
  /// Returns the call that a group makes.
  template <class R>
  static std::unique_ptr<RecordedCall> record(const std::shared_ptr<Connections>& connections,
                                              const CallInfo& info, const CallArguments<R>& given) {
    // `make_unique` would instantiate a unique_ptr for each composition.
    using Recorded = std::unique_ptr<RecordedCall>;
    if constexpr (MovesByCopies<Algo> || ReadsPeers<Op, Algo> ||
                  ((!OverPeers<Algo> || Multicasts<Algo>)&&!sides.cpus)) {
      return Recorded{new GpuCall{connections, info}};
    } else if constexpr (Multicasts<Algo>) {
      return Recorded{new MulticastCall<Op, Algo, Proto, R>{connections, info, given}};
    } else if constexpr (OverPeers<Algo>) {
      register_kernels<PeerKernels<Op, Algo, Proto, R>>();
      return Recorded{new PeerCall<Op, Algo, Proto, R>{connections, info, given}};
    } else {
      return Recorded{new WireCall<Op, Algo, Proto, R>{connections, info, given}};
    }
  }
  template <class R>
  static Result<void> launch_on_gpu(const std::shared_ptr<Connections>& connections,
                                    const CallInfo& info, const CallArguments<R>& given,
                                    Stream stream) {
    if constexpr (MovesByCopies<Algo>) {
      return reduce_by_copies<Op, Algo, Proto>(connections, info, given, stream);
    } else if constexpr (ReadsPeers<Op, Algo>) {
      register_kernels<DirectKernels<Op, Algo, Proto, R>>();
      return launch_direct<Op, Algo, Proto>(connections, info, given, stream);
    } else if constexpr (Multicasts<Algo>) {
      return launch_multicast<Op, Algo, Proto>(connections, info, given, stream);
    } else if constexpr (OverPeers<Algo>) {
      using Kernels = PeerKernels<Op, Algo, Proto, R>;
      register_kernels<Kernels>();
      return launch_over_peers(connections, info, given, stream, Kernels::launch,
                               Kernels::max_elements, peer_work<Op, Algo, R>);
    } else {
      register_kernels<WireKernels<Op, on_gpu_lanes<Algo>, Proto, R>>();
      return launch_on_device(connections, info, wire_parts<Op, Algo, Proto, R, sides.cpus>, given,
                              stream);
    }
  }
  template <class R>
  static constexpr CallPaths<R> paths_of() {
    CallPaths<R> paths{Op::rooted, OverPeers<Algo>, record<R>};
    if constexpr (OverPeers<Algo> || sides.gpus) paths.on_gpu = launch_on_gpu<R>;
    if constexpr (!OverPeers<Algo> && sides.cpus) {
      paths.on_cpu = &wire_parts<Op, Algo, Proto, R, true>;
    }
    if constexpr (Multicasts<Algo> && sides.cpus) {
      paths.over_memory = launch_multicast_on_host<Op, Algo, Proto, R>;
    }
    return paths;
  }
};

}  // namespace ccl::detail
