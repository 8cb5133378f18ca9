#pragma once

#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/exchange/counted_work.hpp>
#include <ccl/detail/exchange/over_wires.hpp>
#include <ccl/detail/exchange/registry.hpp>
#include <ccl/detail/launch/arguments.hpp>
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
Result<void> counted_on_device(Connections& connections, const CallInfo& info, CountedWork work,
                               Stream stream) {
  using Kernels = CountedKernels<Algo, Proto>;
  if (Kernels::launch == nullptr) return fail(connections.no_device_code());
  const std::lock_guard lock{connections.mutex()};
  work.peers = connections.peers();
  work.state = connections.exchange_state();
  const int stride = max_of(1, work.recv_stride);  // all ranks make the same launches
  const bool alone = connections.comm().ranks() == 1;
  work.most = alone ? stride : Kernels::max_rows(work);
  if (work.most < 1) return fail(connections.row_too_long(work.row_bytes));
  const auto launch = [&](const DeviceTarget& target) {
    int code = 0;
    for (work.first = 0; work.first < stride && code == 0; work.first += work.most) {
      code = Kernels::launch(work, target);
    }
    return code;
  };
  if (alone) {
    CCL_CHECK(connections.ready());
    work.watch = connections.watch();
    const int code = launch({connections.comm().device(), stream.cuda(), 128});
    if (code != 0) return fail(connections.cuda_failed(code));
    return {};
  }
  CCL_TRY(const DeviceTarget target, connections.begin_on_device(info, stream));
  work.watch = connections.watch();
  const int code = launch(target);
  return connections.finish_on_device(code, stream);
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

/// Runs a counted exchange on CPU lanes. The counts travel first, in messages of their own.
template <class Op, class Algo, class Proto>
Result<void> counted_on_host(Connections& connections, const CallInfo& info,
                             const CountedWork& work) {
  const std::lock_guard lock{connections.mutex()};
  const int ranks = connections.comm().ranks(), me = connections.comm().rank();
  if (ranks > 1) CCL_CHECK(connections.begin(info));
  const auto fits = [](int rows, int most) { return rows >= 0 && rows <= most; };
  const auto too_many = [&](int peer, int rows, bool sends) {
    LaneFailure found;
    found.peer = Word(peer + 1);
    found.why = LaneFailure::too_many;
    found.count = Word(unsigned(rows));
    found.stride = Word(sends ? work.max_sent() : work.recv_stride);
    found.sends = Word(sends);
    return connections.overflow(found);
  };
  for (int p = 0; p < ranks; ++p) {
    if (!fits(work.send_counts[p], work.max_sent())) {
      return too_many(p, work.send_counts[p], true);
    }
  }
  work.recv_counts[me] = work.send_counts[me];
  connections.help();
  if (ranks > 1) {
    MessageTable counts{ranks};
    for (int p = 0; p < ranks; ++p) {
      if (p == me) continue;
      counts.send(p, &work.send_counts[p], sizeof(int));
      counts.recv(p, &work.recv_counts[p], sizeof(int));
    }
    run_messages<Op, Algo, Proto>(connections, counts);
    CCL_CHECK(connections.finish());
    CCL_CHECK(connections.ready());
    for (int p = 0; p < ranks; ++p) {
      if (!fits(work.recv_counts[p], work.recv_stride)) {
        return too_many(p, work.recv_counts[p], false);
      }
    }
    connections.help();
  }
  const MessageTable table = row_messages(work, ranks);
  run_messages<Op, Algo, Proto>(connections, table);
  if (ranks == 1) return {};
  return connections.finish();
}

}  // namespace ccl::detail
