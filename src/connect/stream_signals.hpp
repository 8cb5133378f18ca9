#pragma once

#include <ccl/detail/copy/work.hpp>

#include <atomic>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "base/io/mapping.hpp"
#include "comm/state.hpp"
#include "gpu/host_pin.hpp"

namespace ccl::detail {

/// Flags that the ranks' streams write and wait for, in host memory that all ranks share. The host
/// can set them at any time, whatever the GPU's queues wait for.
///
/// A flag is 0 or set. A waiting stream resets it before it continues, so replays of a graph need
/// no counts. Set, it is the `WindowPlaceWord` of the call, so that a peer whose buffer has another
/// place ends no wait: the thread then reports both places. A rank may set it again only after it
/// has received a later signal of the other rank. The two kinds of `CopySync`, used in turn, ensure
/// that.
///
/// Stream waits have no deadline and read no status word, so a thread watches this rank's stream.
/// It reports a timeout in the words that a kernel would use. After a timeout or a failure of the
/// communicator it sets this rank's flags repeatedly, so that all waits end.
class StreamSignals {
 public:
  /// Creates the signals. Collective. The caller holds the bootstrap, and passes the number and
  /// name of the composition.
  static Result<std::unique_ptr<StreamSignals>> open(CommState& state, int composition,
                                                     std::string_view name);
  ~StreamSignals();
  StreamSignals(const StreamSignals&) = delete;
  StreamSignals& operator=(const StreamSignals&) = delete;

  /// Queues posts and waits on a stream, also during a capture.
  Result<void> sync(const CopySync& what, CUstream stream) const;

 private:
  struct Board;
  explicit StreamSignals(std::shared_ptr<Gpu> gpu) : gpu_{std::move(gpu)} {}
  Board& mine() const;
  CUdeviceptr flag(int owner, int kind, int writer) const;
  CUdeviceptr outside(int owner, int writer) const;
  /// Peer that does not set the value that this rank's stream waits for.
  struct OtherPlace {
    int peer = -1;
    Word theirs = 0, mine = 0;  // `WindowPlaceWord`
    bool operator==(const OtherPlace&) const = default;
  };
  /// Finds such a peer. `waits`: as on the board, not 0.
  OtherPlace other_place(Word waits) const;
  /// Returns a peer that the stream waits for and that is late, or has departed; -1: none.
  int late_peer(Word waits, double quiet_s) const;
  void watch();
  void let_go();

  std::shared_ptr<Gpu> gpu_;
  int rank_ = 0, ranks_ = 1;
  double timeout_s_ = 0;
  const Status* status_ = nullptr;  // the communicator's
  std::vector<Mapping> boards_;     // one for each rank
  std::vector<HostPin> pins_;       // destroyed before `boards_`
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ccl::detail
