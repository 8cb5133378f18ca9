#pragma once

#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/copy/registry.hpp>
#include <ccl/detail/copy/stream_copies.hpp>
#include <ccl/detail/copy/work.hpp>
#include <ccl/detail/exchange/over_wires.hpp>
#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/device_launch.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/types/operations.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Sequence of copies, syncs and kernels of one `CopyEngine` launch, on a stream and a branch of
/// it. The first failure stops the rest. Only the main stream waits, so that no branch of a graph
/// delays another branch that a peer waits for.
template <class Algo>
class CopySequence {
  using Kernels = CopyKernels<Algo>;

 public:
  CopySequence(Connections& connections, const DeviceTarget& target)
      : connections_{connections},
        target_{target},
        ranks_{connections.comm().ranks()},
        me_{connections.comm().rank()} {}

  int me() const { return me_; }
  int ranks() const { return ranks_; }
  int ahead(int k) const { return (me_ + k) % ranks_; }
  int behind(int k) const { return (me_ + ranks_ - k) % ranks_; }
  unsigned others() const { return ((1u << ranks_) - 1) & ~(1u << me_); }
  const Result<void>& done() const { return done_; }

  void copy(void* to, const void* from, Index bytes) {
    if (!done_ || bytes <= 0 || to == from) return;
    done_ = copies_.copy(to, from, bytes, target_.stream);
  }
  /// Posts to ranks and waits for ranks. Each argument has a bit for each rank.
  void sync(unsigned post_filled, unsigned await_filled, unsigned post_emptied = 0,
            unsigned await_emptied = 0) {
    if (!done_ || (post_filled | await_filled | post_emptied | await_emptied) == 0) return;
    CopySync work;
    work.peers = connections_.peer_memory().view();
    work.counts = connections_.peer_memory().epoch().copies;
    work.post[CopySync::filled] = post_filled;
    work.await[CopySync::filled] = await_filled;
    work.post[CopySync::emptied] = post_emptied;
    work.await[CopySync::emptied] = await_emptied;
    work.watch = connections_.calls().watch;
    if constexpr (SignalsByStream<Algo>) {
      done_ = copies_.signal(work, target_.stream);
    } else {
      check(Kernels::sync(work, target_));
    }
  }
  void barrier() { sync(others(), others()); }
  /// Copies within this rank's memory by multiprocessors, because the copy engines are busy. An
  /// algorithm without kernels copies by the engines.
  void run(const CopyRuns& runs) {
    if constexpr (SignalsByStream<Algo>) {
      for (int r = 0; r < runs.count && done_; ++r) {
        const CopyRuns::Run& run = runs.run[r];
        done_ = copies_.copy(run.to, run.from, run.bytes, on_stream().stream);
      }
    } else {
      if (done_ && runs.count > 0) check(Kernels::runs(runs, on_stream()));
    }
  }
  /// Begins a branch, on which kernels run beside the copies until `join`.
  void fork() {
    if (!done_) return;
    auto branch = copies_.fork(target_.stream);
    if (branch) {
      branch_ = *branch;
    } else {
      done_ = fail(std::move(branch).error());
    }
  }
  void join() {
    if (branch_ == nullptr) return;
    branch_ = nullptr;
    const auto joined = copies_.join(target_.stream);
    if (done_) done_ = joined;
  }
  /// Returns the target of a kernel: the branch if there is one, otherwise the main stream.
  DeviceTarget on_stream() const {
    DeviceTarget target = target_;
    if (branch_ != nullptr) target.stream = branch_;
    target.share = nullptr;
    return target;
  }
  void check(int code) {
    if (code != 0 && done_) done_ = fail(cuda_failed(connections_, code));
  }

  /// Returns the slot of a chunk in the scratch of `owner`, which has two slots.
  char* slot(int owner, Index chunk) const {
    const PeerView& peers = connections_.peer_memory().view();
    return reinterpret_cast<char*>(peers.scratch[owner] + chunk % 2 * peers.half_packets);
  }
  Index slot_bytes() const {
    return connections_.peer_memory().view().half_packets * Index{sizeof(Packet)};
  }
  Index place_bytes() const { return place_bytes(connections_); }
  static Index place_bytes(const Connections& connections) {
    const PeerView& peers = connections.peer_memory().view();
    return peers.half_packets * Index{sizeof(Packet)} / peers.ranks / 128 * 128;
  }
  char* place(int owner, Index chunk, int rank) const {
    return slot(owner, chunk) + rank * place_bytes();
  }

 private:
  Connections& connections_;
  StreamCopies copies_{connections_};
  DeviceTarget target_;
  int ranks_, me_;
  CUstream_st* branch_ = nullptr;
  Result<void> done_;
};

/// Runs the launch that `body` lays out, of a composition that `lock` holds. `table`: messages
/// whose two ends must give the same length.
template <class Algo, class Body>
Result<void> launch_copies(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                           Stream stream, Launch::Lock lock, std::shared_ptr<void> keep, Body body,
                           const MessageTable* table = nullptr) {
  CCL_TRY(Launch && launch,
          Launch::begin_on_device(connections, info, stream, std::move(lock), keep));
  if (table != nullptr && !launch.same_messages(info.what, table->sends, table->recvs)) {
    return check_ready(connections->comm());
  }
  CopySequence<Algo> sequence{*connections, launch.target()};
  body(sequence);
  sequence.join();
  if (!sequence.done()) return launch.give_up(sequence.done().error());
  return launch.finish();
}

/// Returns the number of elements whose multiples begin at multiples of 128 bytes.
constexpr Index copy_grain(Index element_bytes) {
  Index grain = 1;
  while (grain < 128 && grain * element_bytes % 128 != 0) grain *= 2;
  return grain;
}

/// AllReduce and ReduceScatter by copies. Every rank has a share of each chunk. All ranks push
/// their pieces of the share into its scratch, it reduces them, and for AllReduce the others pull
/// the result. No rank writes to the user's buffers of another.
template <class Op, class Algo, class Proto, class R>
class ReduceByCopies {
  using Reducing = CopyReduceKernels<Op, Algo, Proto, R>;
  static constexpr bool all = is_one_of<Op, AllReduce>;
  static constexpr Index size = sizeof(typename R::Type);

 public:
  ReduceByCopies(CopySequence<Algo>& sequence, const R& reduction, const void* input, void* output,
                 const Layout& layout)
      : sequence_{sequence},
        reduction_{reduction},
        in_{static_cast<const char*>(input)},
        out_{static_cast<char*>(output)},
        layout_{layout},
        me_{sequence.me()},
        ranks_{sequence.ranks()} {
    constexpr Index grain = copy_grain(size);
    const Index most = sequence.place_bytes() / size / grain * grain;
    const Index whole = all ? div_up<Index>(layout.count, ranks_) : layout.count;
    chunks_ = div_up(whole, most);
    each_ = min_of(most, div_up(div_up(whole, chunks_), grain) * grain);
  }

  /// Lays out all chunks, with one barrier for each. At the barrier of a chunk, its pieces have
  /// arrived and the previous chunk is reduced. The pulls of the previous chunk and the pushes of
  /// the next run beside the reduction of this one.
  void lay_out() {
    push(0);
    for (Index k = 0; k <= chunks_; ++k) {
      sequence_.barrier();
      if (k < chunks_) {
        sequence_.fork();
        reduce(k);
      }
      if (all && k > 0) pull(k - 1);
      if (k + 1 < chunks_) push(k + 1);
      sequence_.join();
    }
  }

 private:
  struct Piece {
    Index in, out, count;  // elements
  };
  Piece piece(int rank, Index chunk) const {
    const Index at = all ? (chunk * ranks_ + rank) * each_ : chunk * each_;
    const Index count = max_of<Index>(0, min_of(layout_.count - at, each_));
    return {all ? at : rank * layout_.in_stride + at, at, count};
  }
  void push(Index chunk) {
    for (int k = 1; k < ranks_; ++k) {
      const int p = sequence_.ahead(k);
      const Piece theirs = piece(p, chunk);
      sequence_.copy(sequence_.place(p, chunk, me_), in_ + theirs.in * size, theirs.count * size);
    }
  }
  void reduce(Index chunk) {
    const Piece mine = piece(me_, chunk);
    if (mine.count == 0 || !sequence_.done()) return;
    CopyReduction<R> work{reduction_};
    for (int p = 0; p < ranks_; ++p) work.piece[p] = sequence_.place(me_, chunk, p);
    work.piece[me_] = in_ + mine.in * size;
    work.ranks = ranks_;
    work.output = out_ + mine.out * size;
    if (all) work.also = sequence_.place(me_, chunk, me_);
    work.count = mine.count;
    sequence_.check(Reducing::launch(work, sequence_.on_stream()));
  }
  void pull(Index chunk) {
    for (int k = 1; k < ranks_; ++k) {
      const int p = sequence_.ahead(k);
      const Piece theirs = piece(p, chunk);
      sequence_.copy(out_ + theirs.out * size, sequence_.place(p, chunk, p), theirs.count * size);
    }
  }

  CopySequence<Algo>& sequence_;
  const R& reduction_;
  const char* const in_;
  char* const out_;
  const Layout& layout_;
  const int me_, ranks_;
  Index chunks_ = 0, each_ = 0;  // elements of a piece
};

template <class Op, class Algo, class Proto, class R>
Result<void> reduce_by_copies(const std::shared_ptr<Connections>& owner, const CallInfo& info,
                              const CallArguments<R>& given, Stream stream) {
  using Reducing = CopyReduceKernels<Op, Algo, Proto, R>;
  register_kernels<CopyKernels<Algo>>();
  register_kernels<Reducing>();
  Connections& connections = *owner;
  const Layout& layout = given.layout;
  if (Reducing::launch == nullptr || CopyKernels<Algo>::sync == nullptr) {
    return fail(no_device_code(connections));
  }
  if (layout.count == 0) return check_ready(connections.comm());
  Launch::Lock lock{connections.calls().mutex};
  constexpr Index size = sizeof(typename R::Type);
  if (CopySequence<Algo>::place_bytes(connections) < copy_grain(size) * size) {
    return fail(scratch_too_small(connections));
  }
  const auto lay_out = [&](CopySequence<Algo>& sequence) {
    ReduceByCopies<Op, Algo, Proto, R>{sequence, given.reduction, given.input, given.output, layout}
        .lay_out();
  };
  return launch_copies<Algo>(owner, info, stream, std::move(lock), nullptr, lay_out);
}

/// Moves messages between pairs through the senders' scratch. A sender stages a chunk for each
/// receiver (for AllGather, one for all) and posts, and the receivers pull it. Both ends cut a list
/// of messages alike.
template <class Op, class Algo>
class StagedExchange {
  static constexpr bool one_for_all = is_one_of<Op, AllGather>;
  using List = std::vector<Message>;

 public:
  StagedExchange(CopySequence<Algo>& sequence, const MessageTable& table)
      : sequence_{sequence},
        table_{table},
        out_(std::size_t(sequence.ranks())),
        in_(std::size_t(sequence.ranks())) {
    for (int p = 0; p < sequence.ranks(); ++p) {
      const auto at = std::size_t(p);
      if (p == sequence.me()) continue;
      out_[at] = cut(table.sends[at]);
      in_[at] = cut(table.recvs[at]);
      steps_ = max_of(steps_, max_of(out_[at].size(), in_[at].size()));
    }
  }

  /// Lays out all chunks. The sequence ends when the receivers have pulled everything.
  void lay_out() {
    stage(0);
    for (std::size_t k = 0; k < steps_; ++k) {
      sequence_.sync(with(out_, k), with(in_, k), before(in_, k), before(out_, k));
      sequence_.fork();
      if (k + 1 < steps_) stage(k + 1);
      if (k == 0) move_own();
      pull(k);
      sequence_.join();
    }
    if (steps_ == 0) move_own();
    sequence_.sync(0, 0, before(in_, steps_), before(out_, steps_));
  }

 private:
  List cut(const List& messages) const {
    const Index most = one_for_all ? sequence_.slot_bytes() : sequence_.place_bytes();
    List chunks;
    for (const Message& m : messages) {
      for (Index at = 0; at < m.bytes; at += most) {
        chunks.push_back({m.data + at, min_of(most, m.bytes - at)});
      }
    }
    return chunks;
  }
  /// Returns the bits of the ranks whose list has a k-th chunk.
  static unsigned with(const std::vector<List>& lists, std::size_t k) {
    unsigned bits = 0;
    for (std::size_t p = 0; p < lists.size(); ++p) bits |= unsigned(k < lists[p].size()) << p;
    return bits;
  }
  static unsigned before(const std::vector<List>& lists, std::size_t k) {
    return k == 0 ? 0u : with(lists, k - 1);
  }
  void stage(std::size_t k) {
    CopyRuns runs;
    for (int p = 0; p < sequence_.ranks(); ++p) {
      const List& list = out_[std::size_t(p)];
      if (k >= list.size() || (one_for_all && runs.count > 0)) continue;
      runs.run[runs.count++] = {place(sequence_.me(), k, p), list[k].data, list[k].bytes};
    }
    sequence_.run(runs);
  }
  void pull(std::size_t k) {
    for (int j = 1; j < sequence_.ranks(); ++j) {
      const int p = sequence_.ahead(j);
      const List& list = in_[std::size_t(p)];
      if (k >= list.size()) continue;
      sequence_.copy(list[k].data, place(p, k, sequence_.me()), list[k].bytes);
    }
  }
  char* place(int owner, std::size_t k, int rank) const {
    return one_for_all ? sequence_.slot(owner, Index(k)) : sequence_.place(owner, Index(k), rank);
  }
  void move_own() {
    const auto& from = table_.sends[std::size_t(sequence_.me())];
    const auto& to = table_.recvs[std::size_t(sequence_.me())];
    for (std::size_t m = 0; m < from.size() && m < to.size(); ++m) {
      if (from[m].data == to[m].data) continue;
      CopyRuns runs;
      runs.run[runs.count++] = {to[m].data, from[m].data, min_of(from[m].bytes, to[m].bytes)};
      sequence_.run(runs);
    }
  }

  CopySequence<Algo>& sequence_;
  const MessageTable& table_;
  std::vector<List> out_, in_;  // chunks by peer
  std::size_t steps_ = 0;
};

/// Writes messages directly into the buffers of the peers. The `recv` of every rank lies at the
/// same place of one window. Senders wait until the receivers' streams have reached this launch.
template <class Op, class Algo>
void exchange_in_window(CopySequence<Algo>& go, const MessageTable& table,
                        const StreamCopies::InWindow& window) {
  const int ranks = go.ranks(), me = go.me();
  unsigned to = 0, from = 0;
  for (int p = 0; p < ranks; ++p) {
    if (p == me) continue;
    to |= unsigned(!table.sends[std::size_t(p)].empty()) << p;
    from |= unsigned(!table.recvs[std::size_t(p)].empty()) << p;
  }
  go.sync(0, 0, from, to);
  go.fork();
  const auto& own = table.sends[std::size_t(me)];
  const auto& mine = table.recvs[std::size_t(me)];
  if (!own.empty() && !mine.empty() && own[0].data != mine[0].data) {
    CopyRuns runs;
    runs.run[runs.count++] = {mine[0].data, own[0].data, min_of(own[0].bytes, mine[0].bytes)};
    go.run(runs);
  }
  for (int k = 1; k < ranks; ++k) {
    const int p = go.ahead(k);
    const auto& list = table.sends[std::size_t(p)];
    if (list.empty()) continue;
    const Index offset = is_one_of<Op, SendRecv> ? 0 : me * list[0].bytes;
    go.copy(window.of(p) + offset, list[0].data, list[0].bytes);
  }
  go.join();
  go.sync(to, from);
}

/// Finds the buffer of this rank that peers can write to if all ranks have theirs at one place of a
/// window. Returns none if this rank's SendRecv is not one send and one receive.
template <class Op>
std::optional<Message> window_buffer(const MessageTable& table, int ranks) {
  Message recv{};
  if constexpr (is_one_of<Op, AllGather, AllToAll>) {
    const Message& first = table.recvs[0][0];
    recv = {first.data, first.bytes * ranks};
  } else if constexpr (is_one_of<Op, SendRecv>) {
    int sends = 0, recvs = 0;
    for (int p = 0; p < ranks; ++p) {
      const auto& list = table.recvs[std::size_t(p)];
      sends += int(table.sends[std::size_t(p)].size());
      recvs += int(list.size());
      if (!list.empty()) recv = list[0];
    }
    if (sends != 1 || recvs != 1) return std::nullopt;
  }
  return recv;
}

template <class Op, class Algo>
Result<void> exchange_by_copies(const std::shared_ptr<Connections>& owner, const CallInfo& info,
                                const MessageTable& table, Stream stream) {
  if constexpr (!SignalsByStream<Algo>) register_kernels<CopyKernels<Algo>>();
  Connections& connections = *owner;
  const int ranks = connections.comm().ranks();
  if (stream.recorder() != nullptr) {
    stream.recorder()->call = std::make_unique<GpuCall>(owner, info);
    return {};
  }
  if (!connections.on_device()) {  // one rank: `create` refuses CPU ranks otherwise
    return queue_on_host(connections, stream, [table]() -> Result<void> {
      for (std::size_t m = 0; m < table.sends[0].size() && m < table.recvs[0].size(); ++m) {
        alone(Bytes{}, table.sends[0][m].data, table.recvs[0][m].data,
              min_of(table.sends[0][m].bytes, table.recvs[0][m].bytes));
      }
      return {};
    });
  }
  if (ranks == 1) return exchange_alone_on_device(connections, table, stream);
  if (!SignalsByStream<Algo> && CopyKernels<Algo>::sync == nullptr) {
    return fail(no_device_code(connections));
  }
  const std::optional<Message> buffer = window_buffer<Op>(table, ranks);
  if (!buffer && !Algo::stages) return fail(not_in_window(connections, nullptr));
  const Message recv = buffer.value_or(Message{});
  Launch::Lock lock{connections.calls().mutex};
  StreamCopies::InWindow window;
  if (recv.bytes > 0) window = StreamCopies{connections}.in_window(recv.data, recv.bytes);
  std::shared_ptr<void> keep;
  if constexpr (!Algo::stages) {
    if (recv.bytes > 0 && !window) return fail(not_in_window(connections, recv.data));
    if (recv.bytes == 0) return check_ready(connections.comm());
  }
  if (!window && CopySequence<Algo>::place_bytes(connections) < 1) {
    return fail(scratch_too_small(connections));
  }
  if (window) {
    using Kept = std::pair<std::shared_ptr<Connections>, std::shared_ptr<const void>>;
    keep = std::make_shared<Kept>(owner, window.keep);
  }
  CallInfo placed = info;
  if (window) placed.place = window.offset;
  const auto lay_out = [&](CopySequence<Algo>& go) {
    if constexpr (Algo::stages) {
      if (!window) return StagedExchange<Op, Algo>{go, table}.lay_out();
    }
    exchange_in_window<Op>(go, table, window);
  };
  return launch_copies<Algo>(owner, placed, stream, std::move(lock), keep, lay_out, &table);
}

}  // namespace ccl::detail
