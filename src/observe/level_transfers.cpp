#include "comm/observe/level_transfers.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "proxy/transfer_listener.hpp"

namespace ccl::detail {
namespace {

/// Passes the lines of a level to the listener of the whole communicator. Its compositions have
/// numbers of their own there, and are left out.
class LevelListener final : public TransferListener {
 public:
  LevelListener(std::shared_ptr<TransferListener> whole, std::vector<int> ranks)
      : whole_{std::move(whole)}, ranks_{std::move(ranks)} {}

  std::shared_ptr<LineListener> line(const TransferLine& of, Index slot_bytes,
                                     const LineCounts& counts) override {
    TransferLine line = of;
    line.peer = ranks_[std::size_t(of.peer)];
    line.composition = -1;
    return whole_->line(line, slot_bytes, counts);
  }

 private:
  const std::shared_ptr<TransferListener> whole_;
  const std::vector<int> ranks_;  // of the level, in the whole
};

}  // namespace

void follow_transfers(const CommState& whole, const Levels::Part& part) {
  const TransferLog* const log = whole.proxy.transfers();
  TransferLog* const of_level = Access::state(part.comm)->proxy.transfers();
  auto listener = log == nullptr ? nullptr : log->listener();
  if (listener == nullptr || of_level == nullptr) return;
  of_level->set_listener(std::make_shared<LevelListener>(std::move(listener), part.ranks));
}

}  // namespace ccl::detail
