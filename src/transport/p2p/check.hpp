#pragma once

#include <ccl/topo/graph.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/memory.hpp"
#include "gpu/pinned.hpp"

namespace ccl::detail {

/// Reason why two GPUs do not address each other's memory. Travels as a number.
enum class PathFault : std::uint8_t {
  none,
  refused,     // P2pTransport::can_address has the reason
  excluded,    // by CCL_P2P_EXCLUDE
  not_mapped,  // the driver does not map the memory
  failed,      // a copy ended with an error
  stuck,       // a copy did not end
  corrupt,     // written data reads as something else
  lost,        // the owner does not find the data that was written
  slow,
};
/// Description of a fault, for the middle of a sentence.
std::string_view fault_text(PathFault fault);

/// True if the path has been tried and has failed.
constexpr bool failed_its_check(PathFault fault) {
  return fault >= PathFault::not_mapped;
}

/// Times of a copy of `path_trial_bytes`, the best of several.
struct PathTimes {
  double write_us = 0, read_us = 0;
};
constexpr std::size_t path_trial_bytes = 128 << 10;

/// Minimum rate of a working path in bytes per microsecond. It is an order of magnitude below the
/// slowest link of its kind, since other copies may run at the same time.
constexpr double min_mb_per_s(topo::PathType path) {
  return path <= topo::PathType::nvl ? 1000 : 100;
}
/// Judges by the times alone: `slow` or `none`.
PathFault judge(topo::PathType path, const PathTimes& times);

/// Words of a trial, different for each writer.
Word trial_word(Word writer, Word index);

/// Keeps memory of an unfinished copy for the life of the process, because freeing it would wait
/// for the copy.
void leave(std::shared_ptr<const void> used);

/// Copies on a stream of its own, with deadlines, because a copy over a broken path may never end.
class TrialCopies {
 public:
  /// `longest_s` is the deadline of one copy in seconds.
  static Result<std::unique_ptr<TrialCopies>> make(std::shared_ptr<Gpu> gpu, double longest_s);
  ~TrialCopies();
  TrialCopies(const TrialCopies&) = delete;
  TrialCopies& operator=(const TrialCopies&) = delete;

  /// Returns microseconds by the GPU's clock, because this thread may be late on a busy machine.
  /// With `Errc::timed_out` the copy is unfinished: no other can be made, and the caller must
  /// `leave` the memory.
  Result<double> copy(void* to, const void* from, std::size_t bytes);
  bool stuck() const { return stuck_; }
  /// Pinned memory of `path_trial_bytes`.
  Word* staging() const { return static_cast<Word*>(staging_.at()); }

 private:
  explicit TrialCopies(std::shared_ptr<Gpu> gpu) : gpu_{std::move(gpu)} {}
  std::shared_ptr<Gpu> gpu_;
  double longest_s_ = 0;
  CUstream stream_ = nullptr;
  CUevent begun_ = nullptr, ended_ = nullptr;
  Pinned staging_;
  bool stuck_ = false;
};

/// Result of a rank's trial of the path from its GPU to a peer's memory.
struct PathObservation {
  PathFault fault = PathFault::none;
  PathTimes times;
  std::string detail;  // of a fault: figures, or the driver's text
};
/// Writes `path_trial_bytes` from `from` to `there` in the peer's memory, reads them back to `back`
/// and compares. `from` holds the words of `writer`.
PathObservation try_path(TrialCopies& copies, topo::PathType path, Word writer,
                         const std::byte* from, std::byte* there, std::byte* back);
/// Checks that the words of `writer` have arrived at `at` in this rank's own memory.
PathObservation look_for(TrialCopies& copies, Word writer, const std::byte* at);

}  // namespace ccl::detail
