#pragma once

#include <ccl/detail/copy/work.hpp>

#include <atomic>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mapping.hpp"
#include "comm/state.hpp"
#include "gpu/host_pin.hpp"

namespace ccl::detail {

/// Flags that the ranks' streams write and wait for themselves, in host memory that all share: the
/// host can set them without the GPU, whatever its queues are waiting for.
///
/// A flag is 0 or 1: who waits for it takes it back before he goes on, so that replays of a graph
/// need no counts. Each end may set it again only after it has heard of the other since; the two
/// kinds of `CopySync`, used in turn, see to that.
///
/// Stream waits have no deadline and see no status word. A thread does that for them: it looks at
/// what this rank's stream waits for, says by the same words as a kernel would that it has waited
/// too long, and from then on, or once the communicator has failed, sets this rank's flags again
/// and again, until nobody waits.
class StreamSignals {
 public:
  /// Collective; the caller holds the bootstrap. The number and the name are those of the
  /// composition.
  static Result<std::unique_ptr<StreamSignals>> open(CommState& state, int composition,
                                                     std::string_view name);
  ~StreamSignals();
  StreamSignals(const StreamSignals&) = delete;
  StreamSignals& operator=(const StreamSignals&) = delete;

  /// Queues posts and waits. Also during a capture.
  Result<void> sync(const CopySync& what, CUstream stream) const;

 private:
  struct Board;
  explicit StreamSignals(std::shared_ptr<Gpu> gpu) : gpu_{std::move(gpu)} {}
  Board& mine() const;
  CUdeviceptr flag(int owner, int kind, int writer) const;
  void watch();
  void let_go();

  std::shared_ptr<Gpu> gpu_;
  int rank_ = 0, ranks_ = 1;
  double timeout_s_ = 0;
  std::vector<Mapping> boards_;  // of each rank
  std::vector<HostPin> pins_;    // before `boards_` goes
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ccl::detail
