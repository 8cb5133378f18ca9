#pragma once

#include <ccl/algo/ops.hpp>
#include <ccl/collective/device_launch.hpp>
#include <ccl/collective/exchange.hpp>
#include <ccl/collective/host_launch.hpp>
#include <ccl/collective/recorder.hpp>

#include <algorithm>
#include <memory>
#include <mutex>

namespace ccl::detail {

/// The messages of one exchange over a peer view, in as many launches as their number and the
/// scratch want: the n-th holds the n-th piece of each message list. Both ends of a list cut it
/// alike, and lists count for themselves, so ranks need not make the same number of launches.
template <class Op, class Algo, class Proto>
Result<void> exchange_over_peers(const std::shared_ptr<Links>& owner, const CallInfo& info,
                                 const MessageTable& table, Stream stream) {
  enroll<PeerExchangeKernels<Algo, Proto>>();
  Links& links = *owner;
  const int ranks = links.comm().ranks();
  if (stream.recorder() != nullptr) {
    stream.recorder()->call = std::make_unique<GpuCall>(owner, info);
    return {};
  }
  if (!links.on_device()) {  // of one rank, or `create` would have refused
    return queue_on_host(links, stream, [table]() -> Result<void> {
      for (std::size_t m = 0; m < table.sends[0].size() && m < table.recvs[0].size(); ++m) {
        alone(Bytes{}, table.sends[0][m].data, table.recvs[0][m].data,
              std::min(table.sends[0][m].bytes, table.recvs[0][m].bytes));
      }
      return {};
    });
  }
  if (ranks == 1) return exchange_alone_on_device(links, table, stream);
  using Kernels = PeerExchangeKernels<Algo, Proto>;
  if (Kernels::launch == nullptr) return fail(links.no_device_code());
  const std::lock_guard lock{links.mutex()};
  CCL_TRY(const DeviceTarget target, links.begin_on_device(info, stream));
  PeerExchangeWork work;
  work.peers = links.peers();
  work.state = links.exchange_state();
  work.table = links.door_table();
  work.watch = links.watch();
  work.most_rings = Rings::most(ranks, cuda::std::is_same_v<Op, SendRecv>);
  const Index most = Kernels::most_bytes(work.peers, work.most_rings);
  struct Place {
    std::size_t message = 0;
    Index done = 0;
  };
  std::vector<Place> places(std::size_t(2 * ranks));
  const auto next = [&](const std::vector<Message>& list, Place& place) {
    while (place.message < list.size() && list[place.message].bytes <= place.done) {
      ++place.message;
      place.done = 0;
    }
    if (place.message == list.size()) return Message{};
    const Message& whole = list[place.message];
    const Index bytes = std::min(most, whole.bytes - place.done);
    place.done += bytes;
    return Message{whole.data + place.done - bytes, bytes};
  };
  for (;;) {
    bool any = false;
    for (int p = 0; p < ranks; ++p) {
      work.out[p] = next(table.sends[p], places[std::size_t(p)]);
      work.in[p] = next(table.recvs[p], places[std::size_t(ranks + p)]);
      any |= work.out[p].bytes > 0 || work.in[p].bytes > 0;
      const bool told = StoresPlainly<Algo> && p != links.comm().rank();
      work.where[p] = told ? links.door(work.in[p]) : 0;
    }
    const int code = any ? Kernels::launch(work, target) : 0;
    if (!any || code != 0) return links.finish_on_device(code, stream);
  }
}

}  // namespace ccl::detail
