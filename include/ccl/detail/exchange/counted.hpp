#pragma once

#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/exchange/counted_work.hpp>
#include <ccl/detail/exchange/over_wires.hpp>
#include <ccl/detail/exchange/registry.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/launch/arguments.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/types/counted_rows.hpp>

#include <mutex>
#include <string>
#include <utility>

namespace ccl::detail {

/// Checks the buffers, counts and strides of an exchange of rows.
Result<void> check_rows(const Communicator& comm, const CountedRows& rows, Index element_bytes,
                        const void* send, const void* recv);

/// Makes one launch, or several if the longest possible runs exceed a rank's box.
template <class Algo, class Proto>
Result<void> counted_on_device(const std::shared_ptr<Connections>& owner, const CallInfo& info,
                               CountedWork work, Stream stream) {
  Connections& connections = *owner;
  using Kernels = CountedKernels<Algo, Proto>;
  if (Kernels::launch == nullptr) return fail(no_device_code(connections));
  Launch::Lock lock{connections.calls().mutex};
  work.peers = connections.peer_memory().view();
  work.state = connections.peer_memory().epoch();
  const int stride = max_of(1, work.recv_stride);  // all ranks make the same launches
  const bool alone = connections.comm().ranks() == 1;
  work.most = alone ? stride : Kernels::max_rows(work);
  if (work.most < 1) return fail(row_too_long(connections, work.row_bytes));
  const auto launch = [&](const DeviceTarget& target) {
    int code = 0;
    for (work.first = 0; work.first < stride && code == 0; work.first += work.most) {
      code = Kernels::launch(work, target);
      if (work.first == 0) work.watch.phases = PhaseLog::further(work.watch.phases);
    }
    return code;
  };
  if (alone) {
    CCL_CHECK(check_ready(connections.comm()));
    work.watch = connections.calls().watch;
    const int code = launch({connections.comm().device(), stream.cuda(), 128});
    if (code != 0) return fail(cuda_failed(connections, code));
    return {};
  }
  CCL_TRY(Launch && begun, Launch::begin_on_device(owner, info, stream, std::move(lock)));
  work.watch = connections.calls().watch;
  return begun.finish(launch(begun.target()));
}

/// Returns the messages of the rows, after all counts are known.
inline MessageTable row_messages(const CountedWork& work, int ranks) {
  const bool apart = work.row_bytes >= CountedWork::apart_bytes;
  MessageTable table{ranks};
  for (int p = 0; p < ranks; ++p) {
    const int to = work.send_counts[p], from = work.recv_counts[p];
    const Index sent = Index{p} * work.send_stride, received = Index{p} * work.recv_stride;
    if (!apart) {
      table.send(p, work.send + sent * work.row_bytes, to * work.row_bytes);
      table.recv(p, work.recv + received * work.row_bytes, from * work.row_bytes);
      continue;
    }
    const auto row = [&](int i) {
      return work.send_rows == nullptr ? sent + i : Index{work.send_rows[sent + i]};
    };
    for (int i = 0; i < to; ++i) {
      table.send(p, work.send + row(i) * work.row_bytes, work.row_bytes);
      if (work.side_bytes == 0) continue;
      table.send(p, work.send_side + row(i) * work.side_bytes, work.side_bytes);
    }
    for (int i = 0; i < from; ++i) {
      table.recv(p, work.recv + (received + i) * work.row_bytes, work.row_bytes);
      if (work.side_bytes == 0) continue;
      table.recv(p, work.recv_side + (received + i) * work.side_bytes, work.side_bytes);
    }
  }
  return table;
}

/// Exchanges rows on CPU lanes. The counts travel first, in messages of their own.
template <class Op, class Algo, class Proto>
Result<void> counted_on_host(QueuedCall&& call, const CountedWork& work) {
  Connections& connections = call.connections();
  const int ranks = connections.comm().ranks(), me = connections.comm().rank();
  const auto fits = [](int rows, int most) { return rows >= 0 && rows <= most; };
  const auto too_many = [&](int peer, int rows, bool sends) {
    LaneFailure found;
    found.peer = Word(peer + 1);
    found.why = LaneFailure::too_many;
    found.count = Word(unsigned(rows));
    found.stride = Word(sends ? work.max_sent() : work.recv_stride);
    found.sends = Word(sends);
    return fail_overflow(connections, found);
  };
  const auto take_own = [&]() -> Result<void> {
    for (int p = 0; p < ranks; ++p) {
      if (!fits(work.send_counts[p], work.max_sent())) {
        return too_many(p, work.send_counts[p], true);
      }
    }
    work.recv_counts[me] = work.send_counts[me];
    return {};
  };
  if (ranks == 1) {
    const std::lock_guard lock{connections.calls().mutex};
    CCL_CHECK(take_own());
    MessageTable own = row_messages(work, ranks);
    run_messages<Op, Algo, Proto>(connections, own);
    return {};
  }
  CCL_TRY(Launch && launch, Launch::begin(std::move(call)));
  CCL_CHECK(take_own());
  MessageTable counts{ranks};
  for (int p = 0; p < ranks; ++p) {
    if (p == me) continue;
    counts.send(p, &work.send_counts[p], sizeof(int));
    counts.recv(p, &work.recv_counts[p], sizeof(int));
  }
  launch.run_lanes([&] { run_messages<Op, Algo, Proto>(connections, counts); });
  CCL_CHECK(launch.end_lanes());
  CCL_CHECK(check_ready(connections.comm()));
  for (int p = 0; p < ranks; ++p) {
    if (!fits(work.recv_counts[p], work.recv_stride)) {
      return too_many(p, work.recv_counts[p], false);
    }
  }
  MessageTable rows = row_messages(work, ranks);
  launch.run_lanes([&] { run_messages<Op, Algo, Proto>(connections, rows); });
  return launch.finish();
}

}  // namespace ccl::detail
