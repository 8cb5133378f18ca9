#pragma once

#include <ccl/topo/graph.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/memory.hpp"
#include "gpu/pinned.hpp"

namespace ccl::detail {

/// Why two GPUs do not address each other's memory. Travels as a number.
enum class PathFault : std::uint8_t {
  none,
  refused,     // P2pTransport::can_address says why
  excluded,    // by CCL_P2P_EXCLUDE
  not_mapped,  // the driver does not map the memory
  failed,      // a copy ended with an error
  stuck,       // a copy did not end
  corrupt,     // what was written there reads as something else
  lost,        // the owner does not find what was written there
  slow,
};
/// What was seen, for the middle of a sentence.
std::string_view fault_text(PathFault fault);

/// Whether the path has been tried and has failed.
constexpr bool failed_its_check(PathFault fault) {
  return fault >= PathFault::not_mapped;
}

/// How long a copy of `path_trial_bytes` took, the best of several.
struct PathTimes {
  double write_us = 0, read_us = 0;
};
constexpr std::size_t path_trial_bytes = 128 << 10;

/// The least of what a path that works shows, in bytes per microsecond: less than the slowest link
/// of its kind by an order of magnitude, since copies of others may run beside.
constexpr double min_mb_per_s(topo::PathType path) {
  return path <= topo::PathType::nvl ? 1000 : 100;
}
/// By the times alone: `slow` or `none`.
PathFault judge(topo::PathType path, const PathTimes& times);

/// The words of a trial, different for each writer.
Word trial_word(Word writer, Word index);

/// Holds what a copy that never ends may still use, for the life of the process: to free it would
/// wait for the copy.
void leave(std::shared_ptr<const void> used);

/// Copies on a stream of its own, with deadlines: a path that does not work may never let one end.
class TrialCopies {
 public:
  /// `longest_s`: of one copy.
  static Result<std::unique_ptr<TrialCopies>> make(std::shared_ptr<Gpu> gpu, double longest_s);
  ~TrialCopies();
  TrialCopies(const TrialCopies&) = delete;
  TrialCopies& operator=(const TrialCopies&) = delete;

  /// Microseconds by the GPU's clock: on a busy machine this thread may see the end much later.
  /// `Errc::timed_out`: it is still under way, and so no other can be made; the stream is left, and
  /// the memory must be.
  Result<double> copy(void* to, const void* from, std::size_t bytes);
  bool stuck() const { return stuck_; }
  /// Pinned, of `path_trial_bytes`.
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

/// What a rank has seen of the path from its GPU to a peer's memory.
struct PathObservation {
  PathFault fault = PathFault::none;
  PathTimes times;
  std::string detail;  // of a fault: figures, or the driver's words
};
/// Writes `path_trial_bytes` from `from` to `there`, in the peer's memory, reads them back to
/// `back` and looks at them. `from` holds the words of `writer`.
PathObservation try_path(TrialCopies& copies, topo::PathType path, Word writer, const std::byte* from,
                  std::byte* there, std::byte* back);
/// Whether the words of `writer` have arrived at `at`, in this rank's own memory.
PathObservation look_for(TrialCopies& copies, Word writer, const std::byte* at);

}  // namespace ccl::detail
