#pragma once

#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/copy/registry.hpp>
#include <ccl/detail/copy/sequence.hpp>
#include <ccl/detail/copy/stream_copies.hpp>
#include <ccl/detail/copy/work.hpp>
#include <ccl/detail/exchange/over_wires.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/host_launch.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/types/operations.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ccl::detail {

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
  List cut(std::span<const Message> messages) const {
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
    const auto from = table_.sends[std::size_t(sequence_.me())];
    const auto to = table_.recvs[std::size_t(sequence_.me())];
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
  const auto own = table.sends[std::size_t(me)];
  const auto mine = table.recvs[std::size_t(me)];
  if (!own.empty() && !mine.empty() && own[0].data != mine[0].data) {
    CopyRuns runs;
    runs.run[runs.count++] = {mine[0].data, own[0].data, min_of(own[0].bytes, mine[0].bytes)};
    go.run(runs);
  }
  for (int k = 1; k < ranks; ++k) {
    const int p = go.ahead(k);
    const auto list = table.sends[std::size_t(p)];
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
      const auto list = table.recvs[std::size_t(p)];
      sends += int(table.sends[std::size_t(p)].size());
      recvs += int(list.size());
      if (!list.empty()) recv = list[0];
    }
    if (sends != 1 || recvs != 1) return std::nullopt;
  }
  return recv;
}

/// Counts a call of all ranks that this rank makes by another composition, or not at all, because
/// its receive buffer is in no window. Informs ranks whose buffers are, which would wait for this
/// rank's copies: they fail with `Errc::mismatch`. Costs a kernel of one warp, and nothing without
/// windows.
template <class Algo>
Result<void> pass_by_copies(const std::shared_ptr<Connections>& owner, CallInfo info,
                            Stream stream) {
  Connections& connections = *owner;
  bool reports = StreamCopies{connections}.may_be_in_windows();
  if constexpr (!SignalsByStream<Algo>) {
    register_kernels<CopyKernels<Algo>>();
    reports = reports && CopyKernels<Algo>::sync != nullptr;
  }
  if (!reports) {
    connections.calls().count.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  info.place = WindowPlaceWord::in_no_window;
  const auto tell = [&](CopySequence<Algo>& go) {
    go.compare_places(info.place, connections.calls().latest.call);
    go.tell_outside();
  };
  return launch_copies<Algo>(owner, info, stream, Launch::Lock{connections.calls().mutex}, nullptr,
                             tell);
}

/// Refuses a buffer that is in no window, for an algorithm that needs one.
template <class Op, class Algo>
Result<void> refuse_outside(const std::shared_ptr<Connections>& owner, const CallInfo& info,
                            const void* recv, Stream stream) {
  if constexpr (!is_one_of<Op, SendRecv>) {  // whose calls have no number of all ranks
    CCL_CHECK(pass_by_copies<Algo>(owner, info, stream));
  }
  return fail(not_in_window(*owner, recv));
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
  window.place = WindowPlaceWord::in_no_window;
  if (recv.bytes > 0) window = StreamCopies{connections}.in_window(recv.data, recv.bytes);
  std::shared_ptr<void> keep;
  if constexpr (!Algo::stages) {
    if (recv.bytes > 0 && !window) {
      lock.unlock();
      return refuse_outside<Op, Algo>(owner, info, recv.data, stream);
    }
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
  if constexpr (Algo::template in_windows<Op>) placed.place = window.place;
  const auto lay_out = [&](CopySequence<Algo>& go) {
    // Ranks that exchange no messages need not make the same calls of SendRecv.
    const bool numbered = !is_one_of<Op, SendRecv>;
    go.compare_places(placed.place, numbered ? connections.calls().latest.call : 0);
    if constexpr (Algo::stages) {
      if (!window) return StagedExchange<Op, Algo>{go, table}.lay_out();
    }
    exchange_in_window<Op>(go, table, window);
  };
  return launch_copies<Algo>(owner, placed, stream, std::move(lock), keep, lay_out, &table);
}

}  // namespace ccl::detail
