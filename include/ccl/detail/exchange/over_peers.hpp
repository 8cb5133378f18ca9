#pragma once

#include <ccl/types/operations.hpp>
#include <ccl/detail/launch/device_launch.hpp>
#include <ccl/detail/exchange/over_wires.hpp>
#include <ccl/detail/launch/host_launch.hpp>
#include <ccl/detail/launch/recorder.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ccl::detail {

/// The messages of one exchange over a peer view, in as many launches as their number and the
/// scratch want: the n-th holds the n-th piece of each message list. Both ends of a list cut it
/// alike, and lists count for themselves, so ranks need not make the same number of launches.
/// Between `Links::begin` and `Links::finish_on_device`; `links` and `table` must outlive it.
class ExchangePieces {
 public:
  /// `most`: bytes of a piece.
  ExchangePieces(Links& links, const MessageTable& table, int most_rings, bool opens_doors,
                 Index most)
      : links_{links},
        table_{table},
        opens_doors_{opens_doors},
        most_{most},
        places_(2 * table.sends.size()) {
    work_.peers = links.peers();
    work_.state = links.exchange_state();
    work_.table = links.door_table();
    work_.watch = links.watch();
    work_.most_rings = most_rings;
  }
  /// The next launch; false: there is none.
  bool next() {
    bool any = false;
    const int ranks = links_.comm().ranks();
    for (int p = 0; p < ranks; ++p) {
      work_.out[p] = piece(table_.sends[p], places_[std::size_t(p)]);
      work_.in[p] = piece(table_.recvs[p], places_[std::size_t(ranks + p)]);
      any |= work_.out[p].bytes > 0 || work_.in[p].bytes > 0;
      const bool told = opens_doors_ && p != links_.comm().rank();
      work_.where[p] = told ? links_.door(work_.in[p]) : 0;
    }
    return any;
  }
  const PeerExchangeWork& work() const { return work_; }

 private:
  struct Place {
    std::size_t message = 0;
    Index done = 0;
  };
  Message piece(const std::vector<Message>& list, Place& place) const {
    while (place.message < list.size() && list[place.message].bytes <= place.done) {
      ++place.message;
      place.done = 0;
    }
    if (place.message == list.size()) return Message{};
    const Message& whole = list[place.message];
    const Index bytes = std::min(most_, whole.bytes - place.done);
    place.done += bytes;
    return Message{whole.data + place.done - bytes, bytes};
  }

  Links& links_;
  const MessageTable& table_;
  bool opens_doors_;
  Index most_;
  std::vector<Place> places_;
  PeerExchangeWork work_;
};

/// An exchange over a peer view that a group makes, on GPUs.
template <class Op, class Algo, class Proto>
class PeerExchangeCall final : public RecordedCall {
  using Kernels = PeerExchangeKernels<Algo, Proto>;

 public:
  using Work = PeerExchangeWork;
  PeerExchangeCall(std::shared_ptr<Links> links, const CallInfo& info, MessageTable table)
      : RecordedCall{std::move(links), info}, table_{std::move(table)} {}

  static int most_rings(const Links& links) {
    return Rings::most(links.comm().ranks(), cuda::std::is_same_v<Op, SendRecv>);
  }
  static ExchangePieces pieces(Links& links, const MessageTable& table) {
    const int rings = most_rings(links);
    return {links, table, rings, StoresPlainly<Algo>, Kernels::most_bytes(links.peers(), rings)};
  }
  /// One launch of a composition counts a message of each list: all of a group's kernel, or none.
  Index wants() const override { return is_one_small_launch() ? has() : 0; }
  Index has() const override { return 1; }
  bool decides_alone() const override { return true; }
  void run_on_host() override {}  // not reached: `create` refused
  /// Of no ranks if it shares no kernel.
  Work work_on_device() const {
    if (share.size == 0) return {};
    ExchangePieces all = pieces(links(), table_);
    (void)all.next();
    Work shared = all.work();
    shared.watch.ticket = ticket();
    return shared;
  }

 private:
  /// Bytes of each direction: beyond, blocks of its own are worth more than a launch less. A
  /// choice, measured over one GPU's memory only (docs/validation/fused.md, Groups).
  static constexpr Index most_shared = Index{512} << 10;
  bool is_one_small_launch() const {
    if (Kernels::launch == nullptr) return false;
    const Index most = Kernels::most_bytes(links().peers(), most_rings(links()));
    bool any = false;
    for (const auto* side : {&table_.sends, &table_.recvs}) {
      Index bytes = 0;
      for (const auto& list : *side) {
        const auto some = [](const Message& m) { return m.bytes > 0; };
        if (std::ranges::count_if(list, some) > 1) return false;
        for (const Message& m : list) {
          if (m.bytes > most) return false;
          bytes += m.bytes;
        }
      }
      if (bytes > most_shared) return false;
      any |= bytes > 0;
    }
    return any;
  }

  MessageTable table_;
};

template <class Op, class Algo, class Proto>
Result<void> exchange_over_peers(const std::shared_ptr<Links>& owner, const CallInfo& info,
                                 MessageTable table, Stream stream) {
  enroll<PeerExchangeKernels<Algo, Proto>>();
  using Call = PeerExchangeCall<Op, Algo, Proto>;
  Links& links = *owner;
  const int ranks = links.comm().ranks();
  if (stream.recorder() != nullptr) {
    stream.recorder()->call = std::make_unique<Call>(owner, info, std::move(table));
    return {};
  }
  if (!links.on_device()) {  // of one rank, or `create` would have refused
    return queue_on_host(links, stream, [table = std::move(table)]() -> Result<void> {
      for (std::size_t m = 0; m < table.sends[0].size() && m < table.recvs[0].size(); ++m) {
        alone(Bytes{}, table.sends[0][m].data, table.recvs[0][m].data,
              std::min(table.sends[0][m].bytes, table.recvs[0][m].bytes));
      }
      return {};
    });
  }
  if (ranks == 1) return exchange_alone_on_device(links, table, stream);
  const auto kernel = PeerExchangeKernels<Algo, Proto>::launch;
  if (kernel == nullptr) return fail(links.no_device_code());
  const std::lock_guard lock{links.mutex()};
  if (PeerExchangeKernels<Algo, Proto>::most_bytes(links.peers(), Call::most_rings(links)) < 1) {
    return fail(links.scratch_too_small());
  }
  CCL_TRY(const DeviceTarget target, links.begin_on_device(info, stream));
  ExchangePieces pieces = Call::pieces(links, table);
  int code = 0;
  while (code == 0 && pieces.next()) code = kernel(pieces.work(), target);
  return links.finish_on_device(code, stream);
}

}  // namespace ccl::detail
