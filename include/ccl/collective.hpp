#pragma once

#include <ccl/algo/bruck.hpp>
#include <ccl/algo/doubling.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/ops.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/choice.hpp>
#include <ccl/communicator.hpp>
#include <ccl/data_type.hpp>
#include <ccl/host_executor.hpp>
#include <ccl/host_stream.hpp>
#include <ccl/links.hpp>
#include <ccl/proto/wire_context.hpp>
#include <ccl/reduction.hpp>
#include <ccl/transport/any_of.hpp>

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <utility>

namespace ccl {
namespace detail {
template <class Algo, class Op>
concept Runs = requires {
  requires Algo::template supports<Op>;
};

/// Algorithms that address their peers' memory.
template <class Algo>
concept OverPeers = requires {
  typename Algo::RankCounts;
};

template <class Algo>
concept PlansWires = OverPeers<Algo> || requires {
  { Algo::most_wires(2) } -> cuda::std::same_as<int>;
  { Algo::root_moves_wires } -> cuda::std::convertible_to<bool>;
};

/// Says in one sentence what is wrong with a composition.
template <class Op, class Algo, class Proto, class T>
constexpr bool check_collective() {
  static_assert(Runs<Algo, Op>,
                "ccl: this algorithm does not run this operation; see `supports` in "
                "its header for those that it does");
  static_assert(PlansWires<Algo>,
                "ccl: an algorithm must state `most_wires(ranks)` and "
                "`root_moves_wires`, as Ring does");
  static_assert(Protocol<Proto, AnyLanes>,
                "ccl: the third argument of Collective must be a "
                "protocol (Simple, LL, LL128, or a model of Protocol)");
  static_assert(Transport<T>,
                "ccl: the fourth argument of Collective must be a transport (a model "
                "of Transport); the compiler's notes name the missing member");
  static_assert(T::atomic_line_bytes >= Proto::line_bytes,
                "ccl: this protocol needs lines that land whole, and the transport's "
                "atomic_line_bytes is too small for it; use Simple or LL");
  static_assert(!OverPeers<Algo> || offers_peer_view<T>,
                "ccl: this algorithm addresses its peers' memory, and the transport does not offer "
                "that; use P2pTransport or DefaultTransport");
  static_assert(!OverPeers<Algo> || Proto::carries_flags,
                "ccl: this algorithm tells by flags that its data has landed; use LL or LL128");
  return true;
}

/// What every composition has: the links, shared by all copies.
template <class Op, class Algo, class Proto>
class Composition {
 public:
  /// The numbers that this composition runs with.
  const Plan& plan() const { return links_->plan(); }
  /// "all_reduce/Ring/LL128/shm": what runs.
  const std::string& name() const { return links_->name(); }

 protected:
  explicit Composition(std::shared_ptr<Links> links) : links_{std::move(links)} {}
  Composition() = default;

  template <Transport T>
  static Result<std::shared_ptr<Links>> make_links(const Communicator& comm,
                                                   std::optional<Plan> plan) {
    const bool gpu = comm.device() >= 0;
    CCL_CHECK(check_ready(comm));
    CCL_CHECK(may_compose(Op::name, Algo::name, Proto::name));
    Plans plans = plan ? Plans::same(*plan) : gpu ? default_device_plans() : default_plans(comm);
    for (Plan& wanted : plans.by_through) {
      if (plan) break;
      CCL_TRY(wanted, with_buffer_setting(wanted, Proto::name));
    }
    CCL_TRY(auto links,
            Links::create(comm, plans, Algo::most_wires(comm.ranks()), Proto::line_bytes,
                          connector<T>(),
                          fmt::format("{}/{}/{}/{}", Op::name, Algo::name, Proto::name, T::name)));
    if (gpu) CCL_CHECK(load_kernels(*links));
    if (comm.ranks() > 1 && !by_root) CCL_CHECK(connect(*links, 0));
    // Nobody may drop its end while a peer is still on its way to it.
    if (comm.ranks() > 1) CCL_CHECK(comm.barrier());
    return links;
  }
  /// The same for an algorithm that addresses its peers' memory. A slot of the plan is one of the
  /// two halves of this rank's scratch.
  template <Transport T>
  static Result<std::shared_ptr<Links>> make_peers(const Communicator& comm,
                                                   std::optional<Plan> plan) {
    CCL_CHECK(check_ready(comm));
    CCL_CHECK(may_compose(Op::name, Algo::name, Proto::name));
    Plan wanted;
    wanted.slot_count = 2;
    wanted.slot_bytes = Index{16} << 20;
    if (plan) wanted = *plan;
    CCL_TRY(auto links,
            Links::create(comm, Plans::same(wanted), 1, Proto::line_bytes, connector<T>(),
                          fmt::format("{}/{}/{}/{}", Op::name, Algo::name, Proto::name, T::name)));
    if (comm.ranks() == 1) return links;
    if (comm.device() < 0 || !Algo::RankCounts::has(comm.ranks())) {
      return fail(links->no_peer_view());
    }
    CCL_CHECK(load_kernels(*links));
    CCL_CHECK(links->map_peers());  // ends with a barrier
    return links;
  }
  /// Cache-sized slots: what the CPU's caches hold of one wire's ring is what it can hide. Where a
  /// proxy moves them, each costs system calls: over TCP, 1 MiB took 1.4 times as long in such.
  /// More than two ranks of a host fill its caches with large ones.
  static Plans default_plans(const Communicator& comm) {
    const auto with_slots = [](Index most) {
      Plan plan;
      plan.slot_bytes = Proto::default_slot_bytes < most ? Proto::default_slot_bytes : most;
      return plan;
    };
    int neighbours = 1;
    for (int r = 1; r < comm.ranks(); ++r) {
      neighbours += int(comm.peer(r).host_hash == comm.peer(0).host_hash);
    }
    Plan network = with_slots(Index{neighbours > 2 ? 256 : 512} << 10);
    network.slot_count = 4;
    Plans plans = Plans::same(with_slots(Index{64} << 10));
    plans.by_through[int(Through::network)] = network;
    return plans;
  }
  /// Enough channels to fill a GPU; measured on H200.
  static Plan default_device_plan() {
    Plan plan;
    if (Proto::carries_flags) {
      plan.channels = Algo::most_wires(64) > 8 ? 128 : Algo::wires > 2 ? 256 : 512;
      plan.slot_bytes = 4096;
      plan.chunk_steps = 2;
    } else {
      plan.channels = Algo::most_wires(64) > 8 ? 32 : Algo::wires > 2 ? 256 : 128;
      plan.slot_bytes = Index{128} << 10;
      plan.chunk_steps = Algo::wires > 2 ? 1 : 2;
    }
    return plan;
  }
  /// PCIe is full with a few channels. A lone proxy thread carries a network's, and each costs a
  /// connection; larger steps cost it fewer calls.
  static Plans default_device_plans() {
    constexpr bool to_many = Algo::most_wires(64) > 8;
    Plan host = default_device_plan(), network = host;
    if (Proto::carries_flags) {
      host.channels = to_many ? 16 : 32;
      host.slot_bytes = Index{8} << 10;
      network.channels = to_many ? 4 : 8;
      network.slot_bytes = Index{32} << 10;
      network.channel_bytes = Index{32} << 10;
    } else {
      host.channels = to_many ? 8 : 16;
      network.channels = to_many ? 2 : 4;
      network.slot_bytes = Index{256} << 10;
      network.channel_bytes = Index{128} << 10;
    }
    return {{default_device_plan(), host, network}};
  }
  static Result<void> load_kernels(const Links& links) {
    const int device = links.comm().device();
    const auto good = [&](int code) -> Result<void> {
      if (code == 0) return {};
      return fail(links.cuda_failed(code));
    };
    for (auto* l = KernelsOf<Op, Algo, Proto>::first; l != nullptr; l = l->next) {
      CCL_CHECK(good(l->load(device)));
    }
    using Exchange = ExchangeKernels<Algo, Proto>;
    if (Exchange::load != nullptr) CCL_CHECK(good(Exchange::load(device)));
    return {};
  }
  /// Wires differ with the root, so they are made when a root is first named.
  static constexpr bool by_root = [] {
    if constexpr (OverPeers<Algo>) {
      return false;
    } else {
      return Op::rooted && Algo::root_moves_wires;
    }
  }();

  /// The peers that this launch's seats name.
  static Result<void> connect(Links& links, int root) {
    links.seats_for(root, !Op::rooted);
    Seats seats{links, root};
    for (int c = 0; c < links.plan().channels; ++c) {
      seats.channel = c;
      Algo::peers(seats);
    }
    CCL_CHECK(links.connect(seats.in, seats.out));
    links.set_connected(root);
    return {};
  }

  /// Runs now or, given a stream, when everything before it there has run.
  template <class R>
  Result<void> launch(const CallInfo& info, const R& reduction, const void* input, void* output,
                      const Layout& layout, int root, Stream stream) const {
    if constexpr (OverPeers<Algo>) {
      return launch_over_peers(info, reduction, input, output, layout, stream);
    } else {
      enroll<WireKernels<Op, Algo, Proto, R>>();
      if (links_->on_device()) {
        return launch_on_device(info, reduction, input, output, layout, root, stream);
      }
      return queue(stream,
                   [links = links_, info = links_->noted(info), reduction, input, output, layout,
                    root] { return run(*links, info, reduction, input, output, layout, root); });
    }
  }
  template <class R>
  Result<void> launch_on_device(const CallInfo& info, const R& reduction, const void* input,
                                void* output, const Layout& layout, int root, Stream stream) const {
    Links& links = *links_;
    const auto kernels = WireKernels<Op, Algo, Proto, R>::launch;
    if (kernels == nullptr) return fail(links.no_device_code());
    const std::lock_guard lock{links.mutex()};
    if (by_root && !links.connected(root)) CCL_CHECK(connect(links, root));
    CCL_TRY(const DeviceTarget target, links.begin_on_device(info, stream));
    auto work = links.work(reduction);
    if (by_root) work.trees += Index{work.channels} * root;
    work.input = input;
    work.output = output;
    work.layout = layout;
    work.root = root;
    return links.finish_on_device(kernels(work, target), stream);
  }
  template <class R>
  Result<void> launch_over_peers(const CallInfo& info, const R& reduction, const void* input,
                                 void* output, Layout layout, Stream stream) const {
    enroll<PeerKernels<Op, Algo, Proto, R>>();
    Links& links = *links_;
    const auto kernels = PeerKernels<Op, Algo, Proto, R>::launch;
    if (kernels == nullptr) return fail(links.no_device_code());
    if (layout.count == 0) return links.ready();  // flags of no tile could tell of the launch
    layout.split = layout.split && Algo::splits;
    const std::lock_guard lock{links.mutex()};
    CCL_TRY(const DeviceTarget target, links.begin_on_device(info, stream));
    PeerWork<R> work{reduction};
    work.peers = links.peers();
    work.epoch = links.epoch();
    work.watch = links.watch();
    work.input = input;
    work.output = output;
    work.layout = layout;
    return links.finish_on_device(kernels(work, target), stream);
  }
  template <class F>
  Result<void> queue(Stream stream, F call) const {
    CCL_CHECK(links_->ready());
    if (stream.cuda() != nullptr) return fail(links_->not_on_device());
    if (stream.host() == nullptr) return call();
    stream.host()->enqueue(std::move(call));
    return {};
  }

  template <class R>
  static Result<void> run(Links& links, const CallInfo& info, const R& reduction, const void* input,
                          void* output, const Layout& layout, int root) {
    const std::lock_guard lock{links.mutex()};
    CCL_CHECK(links.begin(info));
    if constexpr (by_root) CCL_CHECK(connect(links, root));
    auto work = links.work(loaded(reduction));
    work.input = input;
    work.output = output;
    work.layout = layout;
    work.root = root;
    links.help();
    HostExecutor::run<SoloLane>(work.channels, WireBody<Op, Algo, Proto, 1, R>{work});
    return links.finish();
  }

  /// A scalar that lies in memory is read once per launch.
  template <class R>
  static R loaded(const R& reduction) {
    if constexpr (reduces<R>) return reduction.load();
    return reduction;
  }

  std::shared_ptr<Links> links_;

 private:
  struct Seats {
    const Links& links;
    int root;
    int channel = 0;
    std::vector<int> in{}, out{};
    int rank() const { return links.comm().rank(); }
    int ranks() const { return links.comm().ranks(); }
    RingSeat ring() const { return links.ring(channel); }
    TreeSeat tree() const { return links.tree(channel, root); }
    void from(int peer) { in.push_back(peer); }
    void to(int peer) { out.push_back(peer); }
  };
};

/// Checks of arguments that need no other rank. Errors name the rank and the value.
Result<void> check_buffer(const Communicator& comm, const char* what, const void* buffer,
                          Index count, Index element_bytes);
Result<void> check_root(const Communicator& comm, int root);

template <class T>
std::string_view type_label() {
  if constexpr (has_data_type<T>) return ccl::name(data_type_of<T>);
  return "user type";
}
template <class F>
std::string_view redop_label() {
  if constexpr (cuda::std::is_void_v<F>) return "";
  if constexpr (requires { F::name; }) return F::name;
  return "user functor";
}

template <class T, class F>
CallInfo call_info(const char* what, Index count, int root) {
  CallInfo info;
  const auto put = [](auto& field, std::string_view text) { text.copy(field, sizeof field - 1); };
  put(info.what, what);
  put(info.type, type_label<T>());
  put(info.redop, redop_label<F>());
  info.count = count;
  info.root = root;
  return info;
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
}  // namespace detail

/// A collective operation, put together at compile time: operation, algorithm, protocol, transport.
/// `create` is collective. Objects are handles: copies share the connections. Calls of one object
/// are serialised; all ranks make them in the same order.
template <class Op, class Algo, class Proto, class Transport>
class Collective : public detail::Composition<Op, Algo, Proto> {
  static_assert(detail::check_collective<Op, Algo, Proto, Transport>());
  using Base = detail::Composition<Op, Algo, Proto>;

 public:
  /// Connects what the algorithm needs. Collective. `plan` must be the same on all ranks.
  static Result<Collective> create(const Communicator& comm, std::optional<Plan> plan = {}) {
    if constexpr (detail::OverPeers<Algo>) {
      CCL_TRY(auto links, Base::template make_peers<Transport>(comm, plan));
      return Collective{std::move(links)};
    } else {
      CCL_TRY(auto links, Base::template make_links<Transport>(comm, plan));
      return Collective{std::move(links)};
    }
  }

  /// AllReduce: `count` elements each; everyone gets the reduction of all ranks' elements.
  /// In place where send == recv. `Acc` is the type that elements are added up in.
  template <class Acc = void, class T, class F = Sum>
  requires cuda::std::same_as<Op, AllReduce> Result<void>
  operator()(const T* send, T* recv, Index count, F op = {}, Stream stream = {}) const {
    return reduce_into<Acc>(send, recv, count, count, op, 0, {count, 0, 0, true}, count, stream);
  }
  /// ReduceScatter: `send` has ranks * count elements; rank r gets the reduction of the r-th run.
  /// In place where recv == send + rank * count.
  template <class Acc = void, class T, class F = Sum>
  requires cuda::std::same_as<Op, ReduceScatter> Result<void>
  operator()(const T* send, T* recv, Index count, F op = {}, Stream stream = {}) const {
    return reduce_into<Acc>(send, recv, count, times_ranks(count), op, 0, {count, count, 0, false},
                            count, stream);
  }
  /// Reduce: like AllReduce, but only `root` gets the result; `recv` of the others is not touched.
  template <class Acc = void, class T, class F = Sum>
  requires cuda::std::same_as<Op, Reduce> Result<void>
  operator()(const T* send, T* recv, Index count, F op, int root, Stream stream = {}) const {
    CCL_CHECK(detail::check_root(this->links_->comm(), root));
    const bool mine = root == this->links_->comm().rank();
    return reduce_into<Acc>(send, recv, count, count, op, root, {count, 0, 0, false},
                            mine ? count : 0, stream);
  }
  /// AllGather: `count` elements of each rank; rank r's become the r-th run of `recv`.
  /// In place where send == recv + rank * count.
  template <class T>
  requires cuda::std::same_as<Op, AllGather> Result<void>
  operator()(const T* send, T* recv, Index count, Stream stream = {}) const {
    const Index bytes = count * Index{sizeof(T)};
    CCL_CHECK(check(send, count, sizeof(T), "send"));
    CCL_CHECK(check(recv, times_ranks(count), sizeof(T), "recv"));
    const auto info = detail::call_info<T, void>(Op::name, count, -1);
    const auto& comm = this->links_->comm();
    if (comm.ranks() == 1) return move_alone(send, recv, bytes, stream);
    if constexpr (cuda::std::same_as<Algo, Pairwise>) {
      Table table{comm.ranks()};
      for (int p = 0; p < comm.ranks(); ++p) {
        table.send(p, send, bytes);
        table.recv(p, bytes_at(recv, p * bytes), bytes);
      }
      return exchange(info, std::move(table), stream);
    } else {
      return this->launch(info, Bytes{}, send, recv, {bytes, 0, bytes, false}, 0, stream);
    }
  }
  /// Broadcast: `root`'s `count` elements, to everyone. `send` of the others is not read.
  template <class T>
  requires cuda::std::same_as<Op, Broadcast> Result<void>
  operator()(const T* send, T* recv, Index count, int root, Stream stream = {}) const {
    const auto& comm = this->links_->comm();
    CCL_CHECK(detail::check_root(comm, root));
    const Index bytes = count * Index{sizeof(T)};
    if (root == comm.rank()) CCL_CHECK(check(send, count, sizeof(T), "send"));
    CCL_CHECK(check(recv, count, sizeof(T), "recv"));
    const auto info = detail::call_info<T, void>(Op::name, count, root);
    if (comm.ranks() == 1) return move_alone(send, recv, bytes, stream);
    if constexpr (cuda::std::same_as<Algo, Pairwise>) {
      Table table{comm.ranks()};
      for (int p = 0; root == comm.rank() && p < comm.ranks(); ++p) table.send(p, send, bytes);
      table.recv(root, recv, bytes);
      return exchange(info, std::move(table), stream);
    } else {
      return this->launch(info, Bytes{}, send, recv, {bytes, 0, 0, false}, root, stream);
    }
  }
  /// AllToAll: the p-th run of `count` elements of `send` goes to rank p; what rank p sends becomes
  /// the p-th run of `recv`. Not in place.
  template <class T>
  requires cuda::std::same_as<Op, AllToAll> Result<void>
  operator()(const T* send, T* recv, Index count, Stream stream = {}) const {
    const auto& comm = this->links_->comm();
    const Index bytes = count * Index{sizeof(T)};
    CCL_CHECK(check(send, times_ranks(count), sizeof(T), "send"));
    CCL_CHECK(check(recv, times_ranks(count), sizeof(T), "recv"));
    CCL_CHECK(check_apart(send, recv, times_ranks(bytes)));
    if constexpr (detail::OverPeers<Algo>) {
      if (comm.ranks() == 1) return move_alone(send, recv, bytes, stream);
      return this->launch(detail::call_info<T, void>(Op::name, count, -1), Bytes{}, send, recv,
                          {bytes, bytes, bytes, false}, 0, stream);
    } else {
      Table table{comm.ranks()};
      for (int p = 0; p < comm.ranks(); ++p) {
        table.send(p, bytes_at(send, p * bytes), bytes);
        table.recv(p, bytes_at(recv, p * bytes), bytes);
      }
      return exchange(detail::call_info<T, void>(Op::name, count, -1), std::move(table), stream);
    }
  }
  /// AllToAllV: send_counts[p] elements from send + send_offsets[p] go to rank p, and so back; all
  /// in elements, one entry for each rank. The counts of two ranks for each other must agree.
  template <class T>
  requires cuda::std::same_as<Op, AllToAllV> Result<void>
  operator()(const T* send, std::span<const Index> send_counts, std::span<const Index> send_offsets,
             T* recv, std::span<const Index> recv_counts, std::span<const Index> recv_offsets,
             Stream stream = {}) const {
    const auto& comm = this->links_->comm();
    Table table{comm.ranks()};
    for (const auto* counts : {&send_counts, &send_offsets, &recv_counts, &recv_offsets}) {
      if (int(counts->size()) == comm.ranks()) continue;
      return fail(Errc::invalid_argument,
                  fmt::format("all_to_all_v got {} counts or offsets on rank {} (the communicator "
                              "has {} ranks); give one for each rank",
                              counts->size(), comm.rank(), comm.ranks()));
    }
    for (int p = 0; p < comm.ranks(); ++p) {
      CCL_CHECK(check(send, send_counts[p], sizeof(T), "send"));
      CCL_CHECK(check(recv, recv_counts[p], sizeof(T), "recv"));
      table.send(p, send + send_offsets[p], send_counts[p] * Index{sizeof(T)});
      table.recv(p, recv + recv_offsets[p], recv_counts[p] * Index{sizeof(T)});
    }
    return exchange(detail::call_info<T, void>(Op::name, -1, -1), std::move(table), stream);
  }
  /// Gather: `count` elements of each rank become the runs of `root`'s `recv`, which the others may
  /// leave null. In place on the root where send == recv + root * count.
  template <class T>
  requires cuda::std::same_as<Op, Gather> Result<void>
  operator()(const T* send, T* recv, Index count, int root, Stream stream = {}) const {
    const auto& comm = this->links_->comm();
    const Index bytes = count * Index{sizeof(T)};
    CCL_CHECK(detail::check_root(comm, root));
    CCL_CHECK(check(send, count, sizeof(T), "send"));
    Table table{comm.ranks()};
    table.send(root, send, bytes);
    if (comm.rank() == root) {
      CCL_CHECK(check(recv, times_ranks(count), sizeof(T), "recv"));
      for (int p = 0; p < comm.ranks(); ++p) table.recv(p, bytes_at(recv, p * bytes), bytes);
    }
    return exchange(detail::call_info<T, void>(Op::name, count, root), std::move(table), stream);
  }
  /// Scatter: the p-th run of `root`'s `send` goes to rank p; `send` of the others is not read.
  template <class T>
  requires cuda::std::same_as<Op, Scatter> Result<void>
  operator()(const T* send, T* recv, Index count, int root, Stream stream = {}) const {
    const auto& comm = this->links_->comm();
    const Index bytes = count * Index{sizeof(T)};
    CCL_CHECK(detail::check_root(comm, root));
    CCL_CHECK(check(recv, count, sizeof(T), "recv"));
    Table table{comm.ranks()};
    table.recv(root, recv, bytes);
    if (comm.rank() == root) {
      CCL_CHECK(check(send, times_ranks(count), sizeof(T), "send"));
      for (int p = 0; p < comm.ranks(); ++p) table.send(p, bytes_at(send, p * bytes), bytes);
    }
    return exchange(detail::call_info<T, void>(Op::name, count, root), std::move(table), stream);
  }

  /// SendRecv: a message to `to` and one from `from`, at once.
  template <class T>
  requires cuda::std::same_as<Op, SendRecv> Result<void>
  operator()(const T* send, Index send_count, int to, T* recv, Index recv_count, int from,
             Stream stream = {}) const {
    return group({send_message(send, send_count, to), recv_message(recv, recv_count, from)},
                 stream);
  }
  /// One message of a group.
  struct Leg {
    bool sends = false;
    void* data = nullptr;
    Index count = 0;
    Index element_bytes = 1;
    int peer = -1;
  };
  template <class T>
  requires cuda::std::same_as<Op, SendRecv>
  static Leg send_message(const T* data, Index count, int to) {
    return {true, const_cast<T*>(data), count, Index{sizeof(T)}, to};
  }
  template <class T>
  requires cuda::std::same_as<Op, SendRecv>
  static Leg recv_message(T* data, Index count, int from) {
    return {false, data, count, Index{sizeof(T)}, from};
  }
  template <class T>
  requires cuda::std::same_as<Op, SendRecv> Result<void> send(const T* data, Index count, int to,
                                                              Stream stream = {})
  const { return group({send_message(data, count, to)}, stream); }
  template <class T>
  requires cuda::std::same_as<Op, SendRecv> Result<void> recv(T* data, Index count, int from,
                                                              Stream stream = {})
  const { return group({recv_message(data, count, from)}, stream); }
  /// Sends and receives that go on at once: no order of theirs, here or at the peers, deadlocks.
  /// Messages between two ranks are matched in the order in which each lists them.
  Result<void> group(std::initializer_list<Leg> legs,
                     Stream stream = {}) const requires cuda::std::same_as<Op, SendRecv> {
    return group(std::span{legs.begin(), legs.size()}, stream);
  }
  Result<void> group(std::span<const Leg> legs,
                     Stream stream = {}) const requires cuda::std::same_as<Op, SendRecv> {
    const auto& comm = this->links_->comm();
    Table table{comm.ranks()};
    for (const Leg& leg : legs) {
      CCL_CHECK(detail::check_root(comm, leg.peer));
      CCL_CHECK(check(leg.data, leg.count, leg.element_bytes, leg.sends ? "send" : "recv"));
      if (leg.sends) {
        table.send(leg.peer, leg.data, leg.count * leg.element_bytes);
      } else {
        table.recv(leg.peer, leg.data, leg.count * leg.element_bytes);
      }
    }
    return exchange(detail::call_info<char, void>(Op::name, -1, -1), std::move(table), stream);
  }

 private:
  explicit Collective(std::shared_ptr<detail::Links> links) : Base{std::move(links)} {}

  /// Messages, peer by peer.
  struct Table {
    explicit Table(int ranks) : sends(ranks), recvs(ranks) {}
    std::vector<std::vector<Message>> sends, recvs;
    void send(int peer, const void* data, Index bytes) {
      sends[peer].push_back({static_cast<char*>(const_cast<void*>(data)), bytes});
    }
    void recv(int peer, void* data, Index bytes) {
      recvs[peer].push_back({static_cast<char*>(data), bytes});
    }
  };
  template <class P>
  static P* bytes_at(P* base, Index bytes) {
    return base == nullptr ? nullptr : base + bytes / Index{sizeof(P)};
  }
  Index times_ranks(Index n) const { return n * this->links_->comm().ranks(); }

  Result<void> check(const void* buffer, Index count, Index element_bytes, const char* what) const {
    return detail::check_buffer(this->links_->comm(), what, buffer, count, element_bytes);
  }
  Result<void> check_apart(const void* send, const void* recv, Index bytes) const {
    const auto a = static_cast<const char*>(send), b = static_cast<const char*>(recv);
    if (bytes == 0 || this->links_->comm().ranks() == 1 || a + bytes <= b || b + bytes <= a)
      return {};
    return fail(Errc::invalid_argument,
                fmt::format("{} cannot run in place (send {} and recv {} overlap on rank {}); give "
                            "it two buffers",
                            Op::name, send, static_cast<void*>(const_cast<char*>(b)),
                            this->links_->comm().rank()));
  }

  Result<void> move_alone(const void* send, void* recv, Index bytes, Stream stream) const {
    if (this->links_->on_device()) return this->links_->copy(recv, send, bytes, stream);
    return this->queue(stream, [send, recv, bytes]() -> Result<void> {
      detail::alone(Bytes{}, send, recv, bytes);
      return {};
    });
  }

  template <class Acc, class T, class F>
  Result<void> reduce_into(const T* send, T* recv, Index count, Index send_count, F op, int root,
                           const Layout& layout, Index recv_count, Stream stream) const {
    using A = cuda::std::conditional_t<cuda::std::is_void_v<Acc>, accumulate_t<T>, Acc>;
    using R = Reduction<F, T, A>;
    static_assert(!Algo::reorders || R::commutative,
                  "ccl: this algorithm reduces the ranks in an order of its own, and the functor "
                  "says that it is not commutative");
    if constexpr (requires { Algo::template takes<F>; }) {
      static_assert(Algo::template takes<F>,
                    "ccl: this algorithm cannot run this reduction; see `takes` in its header");
    }
    CCL_CHECK(check(send, send_count, sizeof(T), "send"));
    CCL_CHECK(check(recv, recv_count, sizeof(T), "recv"));
    const auto& comm = this->links_->comm();
    const R reduction{op, comm.ranks()};
    if (comm.ranks() == 1) {
      detail::enroll<detail::AloneKernels<R>>();
      if (this->links_->on_device()) return reduce_alone(reduction, send, recv, count, stream);
      return this->queue(stream, [reduction, send, recv, count]() -> Result<void> {
        detail::alone(reduction.load(), send, recv, count);
        return {};
      });
    }
    return this->launch(detail::call_info<T, F>(Op::name, count, Op::rooted ? root : -1), reduction,
                        send, recv, layout, root, stream);
  }

  template <class R, class T>
  Result<void> reduce_alone(const R& reduction, const T* send, T* recv, Index count,
                            Stream stream) const {
    detail::Links& links = *this->links_;
    if constexpr (!R::prepares) {
      return links.copy(recv, send, count * Index{sizeof(T)}, stream);
    } else {
      const auto kernel = detail::AloneKernels<R>::launch;
      if (kernel == nullptr) return fail(links.no_device_code());
      CCL_CHECK(links.ready());
      const int code = kernel(reduction, send, recv, count, {links.comm().device(), stream.cuda()});
      if (code != 0) return fail(links.cuda_failed(code));
      return {};
    }
  }

  Result<void> exchange(const detail::CallInfo& info, Table table, Stream stream) const {
    detail::enroll<detail::ExchangeKernels<Algo, Proto>>();
    if (this->links_->on_device()) return exchange_on_device(info, table, stream);
    return this->queue(
        stream, [links = this->links_, info = this->links_->noted(info), table = std::move(table)] {
          return run_exchange(*links, info, table);
        });
  }
  Result<void> exchange_on_device(const detail::CallInfo& info, const Table& table,
                                  Stream stream) const {
    detail::Links& links = *this->links_;
    const auto& comm = links.comm();
    if (comm.ranks() == 1) {
      const auto& from = table.sends[0];
      const auto& to = table.recvs[0];
      for (std::size_t m = 0; m < from.size() && m < to.size(); ++m) {
        CCL_CHECK(
            links.copy(to[m].data, from[m].data, std::min(from[m].bytes, to[m].bytes), stream));
      }
      return {};
    }
    const auto kernel = detail::ExchangeKernels<Algo, Proto>::launch;
    if (kernel == nullptr) return fail(links.no_device_code());
    const std::lock_guard lock{links.mutex()};
    ExchangeWork work{links.work(Bytes{})};
    Index most = 0;
    int filled = 0;
    for (int side = 0; side < 2; ++side) {
      for (int p = 0; p <= comm.ranks(); ++p) {
        if (p <= ExchangeWork::most_ranks) work.begin[side][p] = filled;
        if (p == comm.ranks()) break;
        for (const Message& m : side == 0 ? table.sends[p] : table.recvs[p]) {
          if (filled < ExchangeWork::most_messages) work.message[filled] = m;
          most = std::max(most, m.bytes);
          ++filled;
        }
      }
    }
    if (comm.ranks() > ExchangeWork::most_ranks || filled > ExchangeWork::most_messages) {
      return fail(links.too_many_messages(filled));
    }
    CCL_TRY(const auto target, links.begin_on_device(info, stream));
    return links.finish_on_device(kernel(work, most, target), stream);
  }
  static Result<void> run_exchange(detail::Links& links, const detail::CallInfo& info,
                                   const Table& table) {
    const std::lock_guard lock{links.mutex()};
    if (links.comm().ranks() > 1) CCL_CHECK(links.begin(info));
    std::vector<Message> messages[2];
    std::vector<int> begin[2];
    for (int side = 0; side < 2; ++side) {
      for (const auto& of_peer : side == 0 ? table.sends : table.recvs) {
        begin[side].push_back(int(messages[side].size()));
        messages[side].insert(messages[side].end(), of_peer.begin(), of_peer.end());
      }
      begin[side].push_back(int(messages[side].size()));
    }
    auto work = links.work(Bytes{});
    work.sends = {messages[0].data(), begin[0].data(), work.sends.cursor};
    work.recvs = {messages[1].data(), begin[1].data(), work.recvs.cursor};
    links.help();
    HostExecutor::run<SoloLane>(work.channels, WireBody<Op, Algo, Proto, 1, Bytes>{work});
    if (links.comm().ranks() == 1) return {};
    return links.finish();
  }
};

}  // namespace ccl
