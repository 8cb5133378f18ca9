#pragma once

#include <ccl/types/operations.hpp>
#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/device_launch.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/exchange/over_wires.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/detail/copy/stream_copies.hpp>
#include <ccl/detail/copy/work.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Sequence of copies, syncs and kernels of one `CopyEngine` launch, on a stream and a branch of it.
/// The first failure stops the rest. Only the main stream waits, so that no branch of a graph delays
/// another branch that a peer waits for.
template <class Algo>
class CopySequence {
  using Kernels = CopyKernels<Algo>;

 public:
  CopySequence(Connections& connections, const DeviceTarget& target)
      : connections_{connections}, target_{target}, ranks_{connections.comm().ranks()}, me_{connections.comm().rank()} {}

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
    if constexpr (TellsByStream<Algo>) {
      done_ = copies_.signal(work, target_.stream);
    } else {
      check(Kernels::sync(work, target_));
    }
  }
  void barrier() { sync(others(), others()); }
  /// Copies within this rank's memory by multiprocessors, because the copy engines are busy. An
  /// algorithm without kernels copies by the engines.
  void run(const CopyRuns& runs) {
    if constexpr (TellsByStream<Algo>) {
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
  /// Target of a kernel: the branch, if there is one, or the main stream.
  DeviceTarget on_stream() const {
    DeviceTarget target = target_;
    if (branch_ != nullptr) target.stream = branch_;
    target.early = false;
    return target;
  }
  void check(int code) {
    if (code != 0 && done_) done_ = fail(cuda_failed(connections_, code));
  }

  /// Slot of a chunk in the scratch of `owner`, which has two.
  char* slot(int owner, Index chunk) const {
    const PeerView& peers = connections_.peer_memory().view();
    return reinterpret_cast<char*>(peers.scratch[owner] + chunk % 2 * peers.half_packets);
  }
  Index slot_bytes() const { return connections_.peer_memory().view().half_packets * Index{sizeof(Packet)}; }
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

/// Runs the launch that `body` lays out, of a composition that `lock` holds.
template <class Algo, class Body>
Result<void> launch_copies(const std::shared_ptr<Connections>& connections, const CallInfo& info, Stream stream,
                           Launch::Lock lock, std::shared_ptr<void> keep, Body body) {
  CCL_TRY(Launch launch, Launch::begin_on_device(connections, info, stream, std::move(lock), keep));
  CopySequence<Algo> sequence{*connections, launch.target()};
  body(sequence);
  sequence.join();
  if (!sequence.done()) return sequence.done();
  return launch.finish();
}

/// Runs AllReduce or ReduceScatter. All ranks push their pieces of a rank's share of each chunk into
/// its scratch, which it reduces; for AllReduce the others pull the result.
///
/// One barrier for each chunk reports that its pieces have landed and that the previous chunk is
/// reduced. Pulls of the previous chunk and pushes of the next one run beside its reduction. No rank
/// writes to another's buffers.
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
  constexpr bool all = is_one_of<Op, AllReduce>;
  constexpr Index size = sizeof(typename R::Type);
  Launch::Lock lock{connections.calls().mutex};
  const int ranks = connections.comm().ranks(), me = connections.comm().rank();
  Index grain = 1;  // elements: pieces begin at multiples of 128 bytes
  while (grain < 128 && grain * size % 128 != 0) grain *= 2;
  if (CopySequence<Algo>::place_bytes(connections) < grain * size) {
    return fail(scratch_too_small(connections));
  }
  const auto* const in = static_cast<const char*>(given.input);
  auto* const out = static_cast<char*>(given.output);
  const auto lay_out = [&](CopySequence<Algo>& go) {
    const Index most = go.place_bytes() / size / grain * grain;
    const Index whole = all ? div_up<Index>(layout.count, ranks) : layout.count;
    const Index chunks = div_up(whole, most);
    const Index each = std::min(most, div_up(div_up(whole, chunks), grain) * grain);
    struct Piece {
      Index in, out, count;  // elements
    };
    const auto piece = [&](int rank, Index chunk) {
      const Index at = all ? (chunk * ranks + rank) * each : chunk * each;
      const Index count = std::clamp<Index>(layout.count - at, 0, each);
      return Piece{all ? at : rank * layout.in_stride + at, at, count};
    };
    const auto push = [&](Index chunk) {
      for (int k = 1; k < ranks; ++k) {
        const int p = go.ahead(k);
        const Piece theirs = piece(p, chunk);
        go.copy(go.place(p, chunk, me), in + theirs.in * size, theirs.count * size);
      }
    };
    const auto reduce = [&](Index chunk) {
      const Piece mine = piece(me, chunk);
      if (mine.count == 0 || !go.done()) return;
      CopyReduction<R> work{given.reduction};
      for (int p = 0; p < ranks; ++p) work.piece[p] = go.place(me, chunk, p);
      work.piece[me] = in + mine.in * size;
      work.ranks = ranks;
      work.output = out + mine.out * size;
      if (all) work.also = go.place(me, chunk, me);
      work.count = mine.count;
      go.check(Reducing::launch(work, go.on_stream()));
    };
    const auto pull = [&](Index chunk) {
      for (int k = 1; k < ranks; ++k) {
        const int p = go.ahead(k);
        const Piece theirs = piece(p, chunk);
        go.copy(out + theirs.out * size, go.place(p, chunk, p), theirs.count * size);
      }
    };
    push(0);
    for (Index k = 0; k <= chunks; ++k) {
      go.barrier();
      if (k < chunks) {
        go.fork();
        reduce(k);
      }
      if (all && k > 0) pull(k - 1);
      if (k + 1 < chunks) push(k + 1);
      go.join();
    }
  };
  return launch_copies<Algo>(owner, info, stream, std::move(lock), nullptr, lay_out);
}

/// Moves messages between pairs through the senders' scratch. A sender stages a chunk for each
/// receiver (for AllGather, one for all) and posts, and the receivers pull it. Both ends cut a list
/// of messages alike; the sequence ends when the receivers have pulled everything.
template <class Op, class Algo>
void exchange_staged(CopySequence<Algo>& go, const MessageTable& table) {
  constexpr bool one_for_all = is_one_of<Op, AllGather>;
  const int ranks = go.ranks(), me = go.me();
  const Index most = one_for_all ? go.slot_bytes() : go.place_bytes();
  using List = std::vector<Message>;
  const auto cut = [most](const List& messages) {
    List chunks;
    for (const Message& m : messages) {
      for (Index at = 0; at < m.bytes; at += most) {
        chunks.push_back({m.data + at, std::min(most, m.bytes - at)});
      }
    }
    return chunks;
  };
  std::vector<List> out(std::size_t(ranks), List{}), in(std::size_t(ranks), List{});
  std::size_t steps = 0;
  for (int p = 0; p < ranks; ++p) {
    const auto at = std::size_t(p);
    if (p == me) continue;
    out[at] = cut(table.sends[at]);
    in[at] = cut(table.recvs[at]);
    steps = std::max({steps, out[at].size(), in[at].size()});
  }
  /// Bits of the ranks whose list has a k-th chunk.
  const auto with = [&](const std::vector<List>& lists, std::size_t k) {
    unsigned bits = 0;
    for (int p = 0; p < ranks; ++p) bits |= unsigned(k < lists[std::size_t(p)].size()) << p;
    return bits;
  };
  const auto before = [&](const std::vector<List>& lists, std::size_t k) {
    return k == 0 ? 0u : with(lists, k - 1);
  };
  const auto stage = [&](std::size_t k) {
    CopyRuns runs;
    for (int p = 0; p < ranks; ++p) {
      const List& list = out[std::size_t(p)];
      if (k >= list.size() || (one_for_all && runs.count > 0)) continue;
      char* const to = one_for_all ? go.slot(me, Index(k)) : go.place(me, Index(k), p);
      runs.run[runs.count++] = {to, list[k].data, list[k].bytes};
    }
    go.run(runs);
  };
  const auto move_own = [&] {
    const auto& from = table.sends[std::size_t(me)];
    const auto& to = table.recvs[std::size_t(me)];
    for (std::size_t m = 0; m < from.size() && m < to.size(); ++m) {
      if (from[m].data == to[m].data) continue;
      CopyRuns runs;
      runs.run[runs.count++] = {to[m].data, from[m].data, std::min(from[m].bytes, to[m].bytes)};
      go.run(runs);
    }
  };
  stage(0);
  for (std::size_t k = 0; k < steps; ++k) {
    go.sync(with(out, k), with(in, k), before(in, k), before(out, k));
    go.fork();
    if (k + 1 < steps) stage(k + 1);
    if (k == 0) move_own();
    for (int j = 1; j < ranks; ++j) {
      const int p = go.ahead(j);
      const List& list = in[std::size_t(p)];
      if (k >= list.size()) continue;
      const char* const from = one_for_all ? go.slot(p, Index(k)) : go.place(p, Index(k), me);
      go.copy(list[k].data, from, list[k].bytes);
    }
    go.join();
  }
  if (steps == 0) move_own();
  go.sync(0, 0, before(in, steps), before(out, steps));
}

/// Writes messages straight into the peers' buffers: every rank's `recv` lies at the same place of
/// one window. Senders wait until the receivers' streams have reached this launch.
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
    runs.run[runs.count++] = {mine[0].data, own[0].data, std::min(own[0].bytes, mine[0].bytes)};
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

template <class Op, class Algo>
Result<void> exchange_by_copies(const std::shared_ptr<Connections>& owner, const CallInfo& info,
                                const MessageTable& table, Stream stream) {
  if constexpr (!TellsByStream<Algo>) register_kernels<CopyKernels<Algo>>();
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
              std::min(table.sends[0][m].bytes, table.recvs[0][m].bytes));
      }
      return {};
    });
  }
  if (ranks == 1) return exchange_alone_on_device(connections, table, stream);
  if (!TellsByStream<Algo> && CopyKernels<Algo>::sync == nullptr) {
    return fail(no_device_code(connections));
  }
  // Buffer that peers can write to, if all ranks have one at the same place of a window.
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
    if (sends != 1 || recvs != 1) {
      recv = {};
      if (!Algo::stages) return fail(not_in_window(connections, nullptr));
    }
  }
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
      if (!window) return exchange_staged<Op>(go, table);
    }
    exchange_in_window<Op>(go, table, window);
  };
  return launch_copies<Algo>(owner, placed, stream, std::move(lock), keep, lay_out);
}

}  // namespace ccl::detail
