#pragma once

#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/base/spare.hpp>
#include <ccl/detail/exchange/message_list.hpp>
#include <ccl/detail/exchange/over_wires.hpp>
#include <ccl/detail/exchange/registry.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/launch/device_launch.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/host_launch.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/types/operations.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

namespace ccl::detail {

/// Messages of one exchange over peer memory, cut into launches. The n-th launch holds the n-th
/// piece of each message list. Both ends cut a list alike, and ranks need not make the same number
/// of launches.
///
/// Used between the begin and the end of a launch; `connections` and `table` must outlive it.
template <class Work>
class ExchangePieces {
 public:
  /// `most` is the maximum size of a piece in bytes.
  ExchangePieces(Connections& connections, const MessageTable& table, const RingLimit& rings,
                 bool in_turns, bool opens_registry, Index most)
      : connections_{connections},
        table_{table},
        in_turns_{in_turns},
        opens_registry_{opens_registry},
        most_{most} {
    places_->resize(2 * table.sends.size());
    work_.peers = connections.peer_memory().view();
    work_.state = connections.peer_memory().epoch();
    work_.table = connections.peer_memory().registry_table();
    work_.watch = connections.calls().watch;
    work_.rings = rings;
  }
  /// Prepares the next launch. Returns false if there is none.
  bool next() {
    bool any = false;
    const int ranks = connections_.comm().ranks();
    work_.in_turns = false;
    if (launches_++ == 1) work_.watch.phases = PhaseLog::further(work_.watch.phases);
    for (int p = 0; p < ranks; ++p) {
      const auto at = std::size_t(p);
      work_.out[p] = piece(table_.sends[at], (*places_)[at]);
      work_.in[p] = piece(table_.recvs[at], (*places_)[std::size_t(ranks + p)]);
      any |= work_.out[p].bytes > 0 || work_.in[p].bytes > 0;
      work_.in_turns |= in_turns_ && work_.out[p].bytes >= work_.rings.long_bytes;
      const bool reported = opens_registry_ && p != connections_.comm().rank();
      work_.where[p] =
          reported ? connections_.peer_memory().remote_buffer(work_.in[p].data, work_.in[p].bytes)
                   : 0;
    }
    return any;
  }
  const Work& work() const { return work_; }

 private:
  struct MessagePlace {
    std::size_t message = 0;
    Index done = 0;
  };
  Message piece(std::span<const Message> list, MessagePlace& place) const {
    while (place.message < list.size() && list[place.message].bytes <= place.done) {
      ++place.message;
      place.done = 0;
    }
    if (place.message == list.size()) return Message{};
    const Message& whole = list[place.message];
    const Index bytes = min_of(most_, whole.bytes - place.done);
    place.done += bytes;
    return Message{whole.data + place.done - bytes, bytes};
  }

  Connections& connections_;
  const MessageTable& table_;
  bool in_turns_, opens_registry_;
  Index most_;
  int launches_ = 0;  // prepared
  SpareVector<MessagePlace> places_;
  Work work_;
};

/// Exchange over peer memory that a group makes, on GPUs.
template <class Op, class Algo, class Proto>
class PeerExchangeCall final : public RecordedCall {
  using Kernels = PeerExchangeKernels<Algo, Proto>;

 public:
  using Work = PeerExchangeWork;
  PeerExchangeCall(std::shared_ptr<Connections> connections, const CallInfo& info,
                   MessageTable table)
      : RecordedCall{std::move(connections), info}, table_{std::move(table)} {}

  static bool has_one_peer(int ranks) {
    return is_one_of<Op, SendRecv> || (is_one_of<Op, Broadcast> && ranks == 2);
  }
  /// True on all ranks alike. Without a registry nothing is mapped, so nothing takes turns.
  static bool in_turns(const Connections& connections) {
    const int ranks = connections.comm().ranks();
    return connections.peer_memory().registry_table() != nullptr &&
           Rings::in_turns(ranks, has_one_peer(ranks), connections.max_blocks());
  }
  static RingLimit rings(const Connections& connections) {
    const int ranks = connections.comm().ranks();
    const bool turns = in_turns(connections);
    RingLimit limit = Rings::limit(ranks, has_one_peer(ranks), connections.max_blocks(), turns);
    if (turns || ranks > max_unrolled_ranks) {
      // Each slot costs a release, and many rings and ranks divide the scratch.
      const PeerView& view = connections.peer_memory().view();
      while (limit.many > 1 && Rings::slot_bytes(view, limit.many) < Rings::worth_bytes) {
        limit.many /= 2;
      }
      limit.few = min_of(limit.few, limit.many);
    }
    return limit;
  }
  template <class W = Work>
  static ExchangePieces<W> pieces(Connections& connections, const MessageTable& table) {
    const RingLimit limit = rings(connections);
    return {connections,
            table,
            limit,
            in_turns(connections),
            StoresPlainly<Algo>,
            Kernels::max_bytes(connections.peer_memory().view(), limit.many)};
  }
  /// Takes the whole composition or nothing, because a launch counts one message of each list.
  Index wants() const override { return is_one_small_launch() ? capacity() : 0; }
  Index capacity() const override { return 1; }
  bool decides_alone() const override { return true; }
  void run_on_host(Launch&) override {}  // not reached: `create` refused
  /// Returns the work of the first launch. The work has no ranks if the call shares no kernel.
  Work work_on_device() const {
    if (share.size == 0) return {};
    ExchangePieces<Work> all = pieces(connections(), table_);
    (void)all.next();
    Work shared = all.work();
    shared.watch.ticket = ticket();
    return shared;
  }

 private:
  /// Maximum bytes of each direction in a shared launch. A larger exchange gains more from its own
  /// blocks than from one launch less. Measured over one GPU's memory only
  /// (docs/validation/fused.md, Groups).
  static constexpr Index max_shared = Index{512} << 10;
  bool is_one_small_launch() const {
    if (Kernels::launch == nullptr) return false;
    if (connections().comm().ranks() > max_unrolled_ranks) return false;
    const Index most =
        Kernels::max_bytes(connections().peer_memory().view(), rings(connections()).many);
    bool any = false;
    for (const auto* side : {&table_.sends, &table_.recvs}) {
      Index bytes = 0;
      for (std::size_t p = 0; p < side->size(); ++p) {
        int filled = 0;
        for (const Message& m : (*side)[p]) {
          if (m.bytes > most || (m.bytes > 0 && ++filled > 1)) return false;
          bytes += m.bytes;
        }
      }
      if (bytes > max_shared) return false;
      any |= bytes > 0;
    }
    return any;
  }

  MessageTable table_;
};

/// Makes the launches of an exchange. `Work`: arguments for that many ranks.
template <class Call, class Work>
int launch_pieces(Connections& connections, const MessageTable& table, const DeviceTarget& target,
                  int (*kernel)(const Work&, const DeviceTarget&)) {
  ExchangePieces<Work> pieces = Call::template pieces<Work>(connections, table);
  int code = 0;
  while (code == 0 && pieces.next()) code = kernel(pieces.work(), target);
  return code;
}

template <class Op, class Algo, class Proto>
Result<void> exchange_over_peers(const std::shared_ptr<Connections>& owner, const CallInfo& info,
                                 MessageTable table, Stream stream) {
  register_kernels<PeerExchangeKernels<Algo, Proto>>();
  using Call = PeerExchangeCall<Op, Algo, Proto>;
  Connections& connections = *owner;
  const int ranks = connections.comm().ranks();
  if (stream.recorder() != nullptr) {
    stream.recorder()->call = std::make_unique<Call>(owner, info, std::move(table));
    return {};
  }
  if (!connections.on_device()) {  // one rank: `create` refuses CPU ranks otherwise
    return queue_on_host(connections, stream, [table = std::move(table)]() -> Result<void> {
      for (std::size_t m = 0; m < table.sends[0].size() && m < table.recvs[0].size(); ++m) {
        alone(Bytes{}, table.sends[0][m].data, table.recvs[0][m].data,
              min_of(table.sends[0][m].bytes, table.recvs[0][m].bytes));
      }
      return {};
    });
  }
  if (ranks == 1) return exchange_alone_on_device(connections, table, stream);
  using Kernels = PeerExchangeKernels<Algo, Proto>;
  if (Kernels::launch == nullptr) return fail(no_device_code(connections));
  if (Kernels::max_bytes(connections.peer_memory().view(), Call::rings(connections).many) < 1) {
    return fail(scratch_too_small(connections));
  }
  CCL_TRY(Launch && launch, Launch::begin_on_device(owner, info, stream));
  if (!launch.same_messages(Op::name, table.sends, table.recvs)) {
    return check_ready(connections.comm());
  }
  const DeviceTarget& target = launch.target();
  const int code = ranks > max_unrolled_ranks
                       ? launch_pieces<Call>(connections, table, target, Kernels::launch_wide)
                       : launch_pieces<Call>(connections, table, target, Kernels::launch);
  return launch.finish(code);
}

}  // namespace ccl::detail
