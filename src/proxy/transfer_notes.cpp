#include "proxy/transfer_notes.hpp"

#include <ccl/detail/lanes/host_memory.hpp>

#include <algorithm>
#include <utility>

namespace ccl::detail {

TransferNotes::TransferNotes(TransferLog* log, const Edge& edge, const Wire& wire, int channel,
                             int stream)
    : log_{log},
      line_{edge.peer.rank, int(edge.id >> 40), channel, stream, edge.side == EdgeSide::sender},
      slots_(std::size_t(edge.shape.slot_count)) {
  const auto listener = log == nullptr ? nullptr : log->listener();
  if (listener == nullptr) return;
  listener_ = listener->line(line_, edge.shape.slot_bytes, {wire.posted, wire.drained});
}

TransferNotes::~TransferNotes() {
  if (listener_ != nullptr) listener_->closed();
}

Word TransferNotes::now() {
  return HostMemory::now_ns();
}

void TransferNotes::use_networks(const std::vector<std::string>& names) {
  networks_.clear();
  for (const std::string& name : names) networks_.push_back(log_->network(name));
}

void TransferNotes::posted(Word until) {
  if (until <= posted_) return;
  const Word at = now();
  // A ring holds no more steps than it has slots.
  posted_ = std::max(posted_, until < slots_.size() ? 0 : until - slots_.size());
  if (listener_ != nullptr) listener_->posted(posted_, until);
  for (; posted_ < until; ++posted_) slot(posted_) = {at, 0};
}

void TransferNotes::begin(Word step, Word at, Word bytes) {
  if (slot(step).begun != 0) return;
  slot(step).begun = at;
  if (listener_ != nullptr) listener_->begun(step, bytes);
}

void TransferNotes::end(Word step, Word bytes, Word at) {
  const Slot times = std::exchange(slot(step), {});
  const Word begun = times.begun != 0 ? times.begun : at;
  const int network = networks_.empty() ? 0 : networks_[step % networks_.size()];
  if (listener_ != nullptr) {
    if (times.begun == 0) listener_->begun(step, bytes);
    listener_->ended(step, bytes);
  }
  log_->add(line_, {step, bytes, times.posted, begun, now()}, network);
}

}  // namespace ccl::detail
