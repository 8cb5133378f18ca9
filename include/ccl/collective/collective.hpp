#pragma once

#include <ccl/choose/forward.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/arguments.hpp>
#include <ccl/detail/compose/bound_call.hpp>
#include <ccl/detail/compose/checks.hpp>
#include <ccl/detail/compose/composition.hpp>
#include <ccl/detail/exchange/counted.hpp>
#include <ccl/detail/exchange/over_wires.hpp>
#include <ccl/detail/exchange/over_peers.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/numeric/reduction.hpp>

#include <initializer_list>
#include <span>
#include <utility>

namespace ccl {

/// A collective operation, put together at compile time: operation, algorithm, protocol, transport.
/// `create` is collective. Objects are handles: copies share the connections. Calls of one object
/// are serialised; all ranks make them in the same order.
template <class Op, class Algo, class Proto, class Transport>
class Collective : public detail::Composition<Op, Algo, Proto, detail::exec_spaces<Transport>()> {
  static_assert(detail::check_collective<Op, Algo, Proto, Transport>());
  using Base = detail::Composition<Op, Algo, Proto, detail::exec_spaces<Transport>()>;

 public:
  /// Connects what the algorithm needs. Collective. `plan` must be the same on all ranks.
  static Result<Collective> create(const Communicator& comm, std::optional<Plan> plan = {}) {
    CCL_TRY(auto connections, Base::template make_connections<Transport>(comm, plan));
    return Collective{std::move(connections)};
  }

  /// AllReduce: `count` elements each; everyone gets the reduction of all ranks' elements.
  /// In place where send == recv. `Acc` is the type that elements are added up in.
  template <class Acc = void, class T, class F = Sum>
  requires cuda::std::same_as<Op, AllReduce> Result<void>
  operator()(const T* send, T* recv, Index count, F op = {}, Stream stream = {}) const {
    return reduce_into<Acc>(send, recv, count, 1, op, 0, {count, 0, 0, true}, true, stream);
  }
  /// ReduceScatter: `send` has ranks * count elements; rank r gets the reduction of the r-th run.
  /// In place where recv == send + rank * count.
  template <class Acc = void, class T, class F = Sum>
  requires cuda::std::same_as<Op, ReduceScatter> Result<void>
  operator()(const T* send, T* recv, Index count, F op = {}, Stream stream = {}) const {
    return reduce_into<Acc>(send, recv, count, this->connections_->comm().ranks(), op, 0,
                            {count, count, 0, false}, true, stream);
  }
  /// Reduce: like AllReduce, but only `root` gets the result; `recv` of the others is not touched.
  template <class Acc = void, class T, class F = Sum>
  requires cuda::std::same_as<Op, Reduce> Result<void>
  operator()(const T* send, T* recv, Index count, F op, int root, Stream stream = {}) const {
    CCL_CHECK(detail::check_root(this->connections_->comm(), root));
    const bool mine = root == this->connections_->comm().rank();
    return reduce_into<Acc>(send, recv, count, 1, op, root, {count, 0, 0, false}, mine, stream);
  }
  /// AllGather: `count` elements of each rank; rank r's become the r-th run of `recv`.
  /// In place where send == recv + rank * count.
  template <class T>
  requires cuda::std::same_as<Op, AllGather> Result<void>
  operator()(const T* send, T* recv, Index count, Stream stream = {}) const {
    const auto& comm = this->connections_->comm();
    CCL_CHECK(check(send, count, sizeof(T), "send"));
    CCL_CHECK(check(recv, count, sizeof(T), "recv", comm.ranks()));
    const Index bytes = count * Index{sizeof(T)};
    CCL_CHECK(check_overlap(send, bytes, recv, times_ranks(bytes), recv + at_rank(count)));
    const auto info = detail::call_info<T, void>(Op::name, count, -1);
    if (comm.ranks() == 1) return this->move_alone(send, recv, bytes, stream);
    if constexpr (detail::Exchanges<Op, Algo>) {
      Table table{comm.ranks()};
      for (int p = 0; p < comm.ranks(); ++p) {
        table.send(p, send, bytes);
        table.recv(p, bytes_at(recv, p * bytes), bytes);
      }
      return exchange(info, std::move(table), stream);
    } else {
      return this->launch(info, detail::Bytes{}, send, recv, {bytes, 0, bytes, false}, 0, stream);
    }
  }
  /// Broadcast: `root`'s `count` elements, to everyone. `send` of the others is not read.
  template <class T>
  requires cuda::std::same_as<Op, Broadcast> Result<void>
  operator()(const T* send, T* recv, Index count, int root, Stream stream = {}) const {
    const auto& comm = this->connections_->comm();
    CCL_CHECK(detail::check_root(comm, root));
    if (root == comm.rank()) CCL_CHECK(check(send, count, sizeof(T), "send"));
    CCL_CHECK(check(recv, count, sizeof(T), "recv"));
    const Index bytes = count * Index{sizeof(T)};
    if (root == comm.rank()) CCL_CHECK(check_overlap(send, bytes, recv, bytes, recv));
    const auto info = detail::call_info<T, void>(Op::name, count, root);
    if (comm.ranks() == 1) return this->move_alone(send, recv, bytes, stream);
    if constexpr (detail::Exchanges<Op, Algo>) {
      Table table{comm.ranks()};
      for (int p = 0; root == comm.rank() && p < comm.ranks(); ++p) table.send(p, send, bytes);
      table.recv(root, recv, bytes);
      return exchange(info, std::move(table), stream);
    } else {
      return this->launch(info, detail::Bytes{}, send, recv, {bytes, 0, 0, false}, root, stream);
    }
  }
  /// AllToAll: the p-th run of `count` elements of `send` goes to rank p; what rank p sends becomes
  /// the p-th run of `recv`. Not in place.
  template <class T>
  requires cuda::std::same_as<Op, AllToAll> Result<void>
  operator()(const T* send, T* recv, Index count, Stream stream = {}) const {
    const auto& comm = this->connections_->comm();
    CCL_CHECK(check(send, count, sizeof(T), "send", comm.ranks()));
    CCL_CHECK(check(recv, count, sizeof(T), "recv", comm.ranks()));
    const Index bytes = count * Index{sizeof(T)};
    CCL_CHECK(check_apart(send, recv, times_ranks(bytes)));
    if constexpr (!detail::Exchanges<Op, Algo>) {
      if (comm.ranks() == 1) return this->move_alone(send, recv, bytes, stream);
      return this->launch(detail::call_info<T, void>(Op::name, count, -1), detail::Bytes{}, send, recv,
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
  /// What comes lies apart, and not over what goes; only a rank's own share may stay where it is.
  template <class T>
  requires cuda::std::same_as<Op, AllToAllV> Result<void>
  operator()(const T* send, std::span<const Index> send_counts, std::span<const Index> send_offsets,
             T* recv, std::span<const Index> recv_counts, std::span<const Index> recv_offsets,
             Stream stream = {}) const {
    CCL_TRY(Table table, detail::table_of(this->connections_->comm(), send, {send_counts, send_offsets},
                                          recv, {recv_counts, recv_offsets}, sizeof(T)));
    return exchange(detail::call_info<T, void>(Op::name, -1, -1), std::move(table), stream);
  }
  /// AllToAllV with counts that lie in memory: see `CountedRows`. The rows from rank p become those
  /// of `recv` from p * recv_stride on. A count beyond a stride is `Errc::overflow`, and nothing is
  /// written for it. Not in place. On GPUs it takes `OneShot`, on CPU ranks `Pairwise`; counts are
  /// read, and written, when the stream gets there.
  template <class T>
  requires cuda::std::same_as<Op, AllToAllV> Result<void> counted(const T* send, T* recv,
                                                                  const CountedRows& rows,
                                                                  Stream stream = {})
  const {
    constexpr bool over_wires = !detail::OverPeers<Algo>, over_peers = !over_wires;
    static_assert(detail::takes_counts<Op, Algo, Proto>,
                  "ccl: counts that lie in memory take OneShot with LL or LL128, or Pairwise");
    detail::Connections& connections = *this->connections_;
    CCL_CHECK(detail::check_rows(connections.comm(), rows, sizeof(T), send, recv));
    const Index row_bytes = rows.row * Index{sizeof(T)};
    if (stream.recorder() != nullptr) {
      return fail(Errc::not_supported,
                  "a group takes no exchange whose counts lie in memory; call it on its own");
    }
    detail::CountedWork work;
    work.send = reinterpret_cast<const char*>(send);
    work.recv = reinterpret_cast<char*>(recv);
    work.send_counts = rows.send_counts;
    work.recv_counts = rows.recv_counts;
    work.send_rows = rows.send_rows;
    work.row_bytes = row_bytes;
    work.send_side = static_cast<const char*>(rows.send_side);
    work.recv_side = static_cast<char*>(rows.recv_side);
    work.side_bytes = rows.side_bytes;
    work.send_stride = int(rows.send_stride);
    work.recv_stride = int(rows.recv_stride);
    const auto info = detail::call_info<T, void>(Op::name, rows.row * rows.recv_stride, -1);
    if constexpr (over_peers) {
      detail::register_kernels<detail::CountedKernels<Algo, Proto>>();
      if (connections.on_device()) {
        return detail::counted_on_device<Algo, Proto>(this->connections_, info, work, stream);
      }
    }
    if constexpr (over_wires && detail::exec_spaces<Transport>().cpus) {
      if (!connections.on_device()) {
        return detail::queue_on_host(
            this->connections_, info, stream, [work](detail::QueuedCall call) {
              return detail::counted_on_host<Op, Algo, Proto>(std::move(call), work);
            });
      }
    }
    return fail(detail::no_counts(connections));
  }
  /// Gather: `count` elements of each rank become the runs of `root`'s `recv`, which the others may
  /// leave null. In place on the root where send == recv + root * count.
  template <class T>
  requires cuda::std::same_as<Op, Gather> Result<void>
  operator()(const T* send, T* recv, Index count, int root, Stream stream = {}) const {
    const auto& comm = this->connections_->comm();
    CCL_CHECK(detail::check_root(comm, root));
    CCL_CHECK(check(send, count, sizeof(T), "send"));
    const Index bytes = count * Index{sizeof(T)};
    Table table{comm.ranks()};
    table.send(root, send, bytes);
    if (comm.rank() == root) {
      CCL_CHECK(check(recv, count, sizeof(T), "recv", comm.ranks()));
      CCL_CHECK(check_overlap(send, bytes, recv, times_ranks(bytes), recv + at_rank(count)));
      for (int p = 0; p < comm.ranks(); ++p) table.recv(p, bytes_at(recv, p * bytes), bytes);
    }
    return exchange(detail::call_info<T, void>(Op::name, count, root), std::move(table), stream);
  }
  /// Scatter: the p-th run of `root`'s `send` goes to rank p; `send` of the others is not read.
  template <class T>
  requires cuda::std::same_as<Op, Scatter> Result<void>
  operator()(const T* send, T* recv, Index count, int root, Stream stream = {}) const {
    const auto& comm = this->connections_->comm();
    CCL_CHECK(detail::check_root(comm, root));
    CCL_CHECK(check(recv, count, sizeof(T), "recv"));
    const Index bytes = count * Index{sizeof(T)};
    Table table{comm.ranks()};
    table.recv(root, recv, bytes);
    if (comm.rank() == root) {
      CCL_CHECK(check(send, count, sizeof(T), "send", comm.ranks()));
      CCL_CHECK(check_overlap(send, times_ranks(bytes), recv, bytes, recv - at_rank(count)));
      for (int p = 0; p < comm.ranks(); ++p) table.send(p, bytes_at(send, p * bytes), bytes);
    }
    return exchange(detail::call_info<T, void>(Op::name, count, root), std::move(table), stream);
  }

  /// The call of these arguments, for `ccl::group` to make beside others.
  template <class Acc = void, class... Args>
  auto bind(Args... args) const {
    if constexpr (Op::reduces && !Op::rooted && sizeof...(Args) == 3) {
      return bind<Acc>(args..., Sum{});
    } else {
      // Over wires for GPUs only it holds no code for the group's calls on CPU lanes.
      using Call = std::conditional_t<detail::exec_spaces<Transport>().cpus || detail::OverPeers<Algo>,
                                      detail::bound_call<Op, Algo, Proto, Acc, Args...>, void>;
      return detail::BoundCall<Collective, Call, Acc, Args...>{*this, {args...}};
    }
  }

  /// SendRecv: a message to `to` and one from `from`, at once. What comes lies apart, and not over
  /// what goes; only a rank's message to itself may stay where it is. The same of groups.
  template <class T>
  requires cuda::std::same_as<Op, SendRecv> Result<void>
  operator()(const T* send, Index send_count, int to, T* recv, Index recv_count, int from,
             Stream stream = {}) const {
    return group({send_message(send, send_count, to), recv_message(recv, recv_count, from)},
                 stream);
  }
  using P2pOp = detail::P2pOp;
  template <class T>
  requires cuda::std::same_as<Op, SendRecv>
  static P2pOp send_message(const T* data, Index count, int to) {
    return {true, const_cast<T*>(data), count, Index{sizeof(T)}, to};
  }
  template <class T>
  requires cuda::std::same_as<Op, SendRecv>
  static P2pOp recv_message(T* data, Index count, int from) {
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
  Result<void> group(std::initializer_list<P2pOp> p2p_ops,
                     Stream stream = {}) const requires cuda::std::same_as<Op, SendRecv> {
    return group(std::span{p2p_ops.begin(), p2p_ops.size()}, stream);
  }
  Result<void> group(std::span<const P2pOp> p2p_ops, Stream stream = {},
                     detail::Overlaps overlaps = detail::Overlaps::refused)
      const requires cuda::std::same_as<Op, SendRecv> {
    CCL_TRY(Table table, detail::table_of(this->connections_->comm(), p2p_ops, overlaps));
    return exchange(detail::call_info<char, void>(Op::name, -1, -1), std::move(table), stream);
  }

 private:
  template <class, class, class, bool>
  friend struct detail::MadeCandidates;
  explicit Collective(std::shared_ptr<detail::Connections> connections) : Base{std::move(connections)} {}
  static Result<Collective> create_late(const Communicator& comm) {
    CCL_TRY(auto connections, Base::template make_connections<Transport>(comm, {}, true));
    return Collective{std::move(connections)};
  }
  /// In a communicator of one rank nothing is combined: any functor will do.
  template <class Acc, class T, class F>
  Result<void> alone(const T* send, T* recv, Index count, F op, Stream stream = {}) const {
    using A = cuda::std::conditional_t<cuda::std::is_void_v<Acc>, accumulate_t<T>, Acc>;
    const Index bytes = count * Index{sizeof(T)};
    CCL_CHECK(check(send, count, sizeof(T), "send"));
    CCL_CHECK(check(recv, count, sizeof(T), "recv"));
    CCL_CHECK(check_overlap(send, bytes, recv, bytes, recv));
    return this->reduce_alone(detail::Reduction<F, T, A>{op, 1}, send, recv, count, stream);
  }
  template <class Acc, class T, class F>
  Result<void> alone(const T* send, T* recv, Index count, F op, int root,
                     Stream stream = {}) const {
    CCL_CHECK(detail::check_root(this->connections_->comm(), root));
    return alone<Acc>(send, recv, count, op, stream);
  }

  using Table = detail::MessageTable;

  template <class P>
  static P* bytes_at(P* base, Index bytes) {
    return base == nullptr ? nullptr : base + bytes / Index{sizeof(P)};
  }
  Index times_ranks(Index n) const { return n * this->connections_->comm().ranks(); }
  /// Where this rank's run of `count` begins.
  Index at_rank(Index count) const { return count * this->connections_->comm().rank(); }

  Result<void> check(const void* buffer, Index count, Index element_bytes, const char* what,
                     Index runs = 1) const {
    return detail::check_buffer(this->connections_->comm(), what, buffer, count, element_bytes, runs);
  }
  Result<void> check_overlap(const void* send, Index send_bytes, const void* recv, Index recv_bytes,
                             const void* in_place) const {
    return detail::check_overlap(this->connections_->comm(), Op::name, send, send_bytes, recv, recv_bytes,
                                 in_place);
  }
  Result<void> check_apart(const void* send, const void* recv, Index bytes) const {
    return detail::check_apart(this->connections_->comm(), Op::name, send, recv, bytes);
  }

  template <class Acc, class T, class F>
  Result<void> reduce_into(const T* send, T* recv, Index count, int runs, F op, int root,
                           const Layout& layout, bool gets, Stream stream) const {
    using A = cuda::std::conditional_t<cuda::std::is_void_v<Acc>, accumulate_t<T>, Acc>;
    using R = detail::Reduction<F, T, A>;
    static_assert(!Algo::reorders || R::commutative,
                  "ccl: this algorithm reduces the ranks in an order of its own, and the functor "
                  "says that it is not commutative");
    static_assert(detail::algorithm_takes<Algo, F>(),
                  "ccl: this algorithm cannot run this reduction; see `takes` in its header");
    static_assert(detail::protocol_carries<Proto, F, T>(),
                  "ccl: this protocol cannot carry this reduction of these elements; see `takes` "
                  "in its header");
    CCL_CHECK(check(send, count, sizeof(T), "send", runs));
    const auto& comm = this->connections_->comm();
    if (gets) {
      CCL_CHECK(check(recv, count, sizeof(T), "recv"));
      const Index bytes = count * Index{sizeof(T)};
      CCL_CHECK(
          check_overlap(send, runs * bytes, recv, bytes, runs == 1 ? recv : recv - at_rank(count)));
    }
    const R reduction{op, comm.ranks()};
    if (comm.ranks() == 1) return this->reduce_alone(reduction, send, recv, count, stream);
    return this->launch(detail::call_info<T, F>(Op::name, count, Op::rooted ? root : -1), reduction,
                        send, recv, layout, root, stream);
  }

  Result<void> exchange(const detail::CallInfo& info, Table table, Stream stream) const {
    if constexpr (detail::MovesByCopies<Algo>) {
      return detail::exchange_by_copies<Op, Algo>(this->connections_, info, table, stream);
    } else if constexpr (detail::OverPeers<Algo>) {
      return detail::exchange_over_peers<Op, Algo, Proto>(this->connections_, info, table, stream);
    } else {
      return detail::exchange<Op, Algo, Proto, detail::exec_spaces<Transport>()>(
          this->connections_, info, std::move(table), stream);
    }
  }
};

}  // namespace ccl
