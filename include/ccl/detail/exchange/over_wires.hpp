#pragma once

#include <ccl/comm/stream.hpp>
#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/base/spare.hpp>
#include <ccl/detail/exchange/batches.hpp>
#include <ccl/detail/exchange/message_list.hpp>
#include <ccl/detail/exchange/registry.hpp>
#include <ccl/detail/exchange/short_messages.hpp>
#include <ccl/detail/launch/device_copy.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/host_launch.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/detail/launch/short_call.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/on_demand.hpp>
#include <ccl/detail/runtime/pair_use.hpp>
#include <ccl/detail/wire/launch.hpp>
#include <ccl/transport/for_device.hpp>

#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Message of a group of sends and receives.
struct P2pOp {
  bool sends = false;
  void* data = nullptr;
  Index count = 0;
  Index element_bytes = 1;
  int peer = -1;
};
/// Treatment of messages whose buffers overlap. NCCL's interface allows them and leaves their data
/// undefined.
enum class Overlaps { refused, allowed };
/// Checks the messages of a group and returns them by peer.
Result<MessageTable> table_of(const Communicator& comm, std::span<const P2pOp> p2p_ops,
                              Overlaps overlaps);
/// Counts and offsets of one side of an AllToAllV, in elements.
struct RunsOfRanks {
  std::span<const Index> counts, offsets;
};
/// Checks the messages of an AllToAllV and returns them by peer.
Result<MessageTable> table_of(const Communicator& comm, const void* send, const RunsOfRanks& sends,
                              void* recv, const RunsOfRanks& recvs, Index element_bytes);

/// Lists the peers that have a message with bytes.
inline void list_peers(const MessageList& messages, std::vector<int>& found) {
  for (std::size_t p = 0; p < messages.size(); ++p) {
    bool some = false;
    for (const Message& m : messages[p]) some |= m.bytes > 0;
    if (some) found.push_back(int(p));
  }
}

/// Runs the CPU lanes of an exchange.
template <class Op, class Algo, class Proto>
void run_messages(Connections& connections, MessageTable& table) {
  auto work = wire_work(connections, Bytes{});
  work.sends = table.sends.view(work.sends.cursor);
  work.recvs = table.recvs.view(work.recvs.cursor);
  const auto run_lanes = [&] {
    HostExecutor::run<SoloLane>(work.channels, WireBody<Op, Algo, Proto, 1, Bytes>{work});
  };
  if (connections.lacks_wires()) {
    SpareVector<int> from, to;
    list_peers(table.recvs, *from);
    list_peers(table.sends, *to);
    const PairUse in_use{connections, *from, *to};
    if (!in_use.begun()) return;
    if (const auto opening = connections.open(*from, *to)) {
      const OnDemandConnect::IdleScope idle_scope{*opening};
      const OnDemandWork some{work, opening->wire_ready(false), opening->wire_ready(true)};
      HostExecutor::run<SoloLane>(work.channels, OnDemandBody<Op, Algo, Proto>{some});
      return opening->finish();
    }
    return run_lanes();
  }
  run_lanes();
}

template <class Op, class Algo, class Proto>
Result<void> exchange_on_host(QueuedCall&& call, MessageTable& table) {
  Connections& connections = call.connections();
  if (connections.comm().ranks() == 1) {
    const std::lock_guard lock{connections.calls().mutex};
    run_messages<Op, Algo, Proto>(connections, table);
    return {};
  }
  CCL_TRY(Launch && launch, Launch::begin(std::move(call)));
  if (launch.same_messages(Op::name, table.sends, table.recvs)) {
    launch.run_lanes([&] { run_messages<Op, Algo, Proto>(connections, table); });
  }
  return launch.finish();
}

/// Copies the messages of the only rank to itself.
inline Result<void> exchange_alone_on_device(const Connections& connections,
                                             const MessageTable& table, Stream stream) {
  const auto from = table.sends[0], to = table.recvs[0];
  for (std::size_t m = 0; m < from.size() && m < to.size(); ++m) {
    CCL_CHECK(copy_on_device(connections.comm(), to[m].data, from[m].data,
                             min_of(from[m].bytes, to[m].bytes), stream));
  }
  return {};
}
/// Exchange that a group makes.
template <class Op, class Algo, class Proto>
class ExchangeCall final : public RecordedCall {
 public:
  ExchangeCall(std::shared_ptr<Connections> connections, const CallInfo& info, MessageTable table)
      : RecordedCall{std::move(connections), info}, table_{std::move(table)} {}
  void run_on_host(Launch& launch) override {
    if (!launch.same_messages(Op::name, table_.sends, table_.recvs)) return;
    launch.run_lanes([&] { run_messages<Op, Algo, Proto>(connections(), table_); });
  }

 private:
  MessageTable table_;
};

template <class Algo, class Proto>
Result<void> exchange_on_device(const std::shared_ptr<Connections>& owner, const CallInfo& info,
                                const MessageTable& table, Stream stream) {
  const Connections& connections = *owner;
  const auto& comm = connections.comm();
  if (comm.ranks() == 1) return exchange_alone_on_device(connections, table, stream);
  const auto kernel = ExchangeKernels<Algo, Proto>::launch;
  if (kernel == nullptr) return fail(no_device_code(connections));
  Launch::Lock lock{owner->calls().mutex};
  ExchangeWork work{wire_work(connections, Bytes{})};
  ExchangeBatches batches{table, connections.positions().ring(0)};
  CCL_TRY(Launch && launch, Launch::begin_on_device(owner, info, stream, std::move(lock)));
  work.watch = connections.calls().watch;  // with the ticket of this call
  if (!launch.same_messages(info.what, table.sends, table.recvs)) return check_ready(comm);
  int code = 0;
  do {
    const Index longest = batches.next(work);
    code = kernel(work, longest, launch.target());
  } while (code == 0 && batches.left());
  return launch.finish(code);
}

/// Runs an exchange on CPU lanes or on the GPU. A group records it instead.
template <class Op, class Algo, class Proto, ExecSpaces sides>
Result<void> exchange(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                      MessageTable&& table, Stream stream) {
  if (stream.recorder() != nullptr) {
    if constexpr (sides.cpus) {
      using Call = ExchangeCall<Op, Algo, Proto>;
      stream.recorder()->call = std::make_unique<Call>(connections, info, std::move(table));
    } else {
      stream.recorder()->call = std::make_unique<GpuCall>(connections, info);
    }
    return {};
  }
  if constexpr (sides.gpus) {
    register_kernels<ExchangeKernels<Algo, Proto>>();
    if (connections->on_device())
      return exchange_on_device<Algo, Proto>(connections, info, table, stream);
  }
  if constexpr (sides.cpus) {
    if constexpr (moves_short_messages<Algo, Proto>) {
      if (stream.host() == nullptr && stream.cuda() == nullptr) {
        if (ShortCall call{*connections, info}; call.begun()) {
          if (!move_short_messages(*connections, table)) {
            run_messages<Op, Algo, Proto>(*connections, table);
          }
          return call.finish();
        }
      }
    }
    if (stream.host() == nullptr) {
      auto run = [&table](QueuedCall&& call) {
        return exchange_on_host<Op, Algo, Proto>(std::move(call), table);
      };
      return run_on_host_now(connections, info, stream, run);
    }
    return queue_on_host(connections, info, stream,
                         [table = std::move(table)](QueuedCall&& call) mutable {
                           return exchange_on_host<Op, Algo, Proto>(std::move(call), table);
                         });
  }
  return fail(no_device_code(*connections));  // not reached: creation was refused
}

}  // namespace ccl::detail
