#include "comm/observe/transfers.hpp"

#include "comm/observe/lane_phases.hpp"
#include "comm/state.hpp"
#include "proxy/transfer_log.hpp"

namespace ccl::detail {

std::vector<Transfer> transfers(const CommState& state) {
  std::vector<Transfer> all;
  const TransferLog* const log = state.proxy.transfers();
  if (log == nullptr) return all;
  const long long offset = system_clock_offset();
  const auto at = [offset](Word ns) {
    return ns == 0 ? 0 : Word(static_cast<long long>(ns) + offset);
  };
  for (const TransferLog::Kept& kept : log->latest()) {
    Transfer one;
    one.sends = kept.line.sends;
    one.peer = kept.line.peer;
    one.composition = kept.line.composition;
    one.channel = kept.line.channel;
    one.stream = kept.line.stream;
    one.step = kept.times.step;
    one.bytes = kept.times.bytes;
    one.posted_ns = at(kept.times.posted);
    one.begin_ns = at(kept.times.begun);
    one.end_ns = at(kept.times.ended);
    one.network = kept.network;
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace ccl::detail
