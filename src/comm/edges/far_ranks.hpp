#pragma once

#include <ccl/detail/lanes/far_queue.hpp>
#include <ccl/transport/proxy_task.hpp>
#include <ccl/types/connection.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "gpu/gpu.hpp"
#include "gpu/pinned.hpp"

namespace ccl::detail {

/// Memory of this rank into which messages of far ranks go.
struct FarTarget {
  char *window = nullptr, *scratch = nullptr;
  Index window_bytes = 0, scratch_bytes = 0;
};

/// Path of a `DeviceComm` to ranks whose memory its kernels do not address. Kernels fill a queue in
/// memory of the host. A task of the proxy moves its messages over a wire to each such rank, and
/// delivers what arrives, in order.
class FarRanks {
 public:
  /// Connects this rank with `peers`. Collective, also for ranks without such peers.
  static Result<std::unique_ptr<FarRanks>> connect(CommState& state, int composition,
                                                   const std::vector<int>& peers,
                                                   const FarTarget& target);
  /// Drops messages that are not delivered.
  ~FarRanks();
  FarRanks(const FarRanks&) = delete;
  FarRanks& operator=(const FarRanks&) = delete;

  /// Drops messages to the window from now on unless that window is open: the program may have
  /// freed it. Any other message is still delivered, and the queue is still sent.
  void leave_window(Word number);
  FarQueue queue() const;
  /// Returns when all messages of the kernels of all ranks are delivered. The kernels must have
  /// ended, and all ranks call it.
  Result<void> finish();

 private:
  class Task;
  FarRanks() = default;
  CommState* state_ = nullptr;
  std::vector<Connection> connections_;
  std::shared_ptr<Task> task_;
};

}  // namespace ccl::detail
