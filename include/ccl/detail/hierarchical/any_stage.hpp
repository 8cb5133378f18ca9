#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/exchange/batches.hpp>
#include <ccl/types/plan.hpp>

#include <memory>
#include <optional>
#include <span>

namespace ccl::detail {

/// Level of a `Hierarchical`: the composition that it runs, whose type only its functions know. The
/// steps of all hierarchical collectives are then compiled once, into the runtime.
class AnyStage {
 public:
  virtual ~AnyStage() = default;
  virtual const Plan& level_plan() const = 0;

  /// Run of an all-gather: `bytes` of each rank. Places of ranks in `out` are `stride` bytes apart.
  struct Run {
    const char* in;
    char* out;
  };
  // Each fails if the stage's operation is another.
  virtual Result<void> gather(std::span<const Run> runs, Index bytes, Index stride,
                              Stream stream) const = 0;
  virtual Result<void> broadcast(const void* in, void* out, Index bytes, int root,
                                 Stream stream) const = 0;
  virtual Result<void> send_all(MessageTable table, Stream stream) const = 0;

 protected:
  /// Returns the error that a stage of `op` runs nothing else.
  static Result<void> wrong_operation(const char* op);
};
using MakeStage = Result<std::unique_ptr<const AnyStage>> (*)(const Communicator& comm,
                                                              std::optional<Plan> plan);

/// Passes of a reduction over levels: the only one, the first of two, or the second of two.
enum class Pass { whole, begun, ended };

/// Reductions of a call for its levels, whose types only the functions know. Refers to a
/// `ReductionsOfPasses` that outlives it.
struct LevelReductions {
  using Reduce = Result<void> (*)(const AnyStage& stage, const void* by, Pass pass, const void* in,
                                  void* out, const Layout& layout, int root, Stream stream);
  Index element_bytes;
  const void* by;
  Reduce inner, outer;
  std::shared_ptr<const void> (*copy)(const void* by);
  std::shared_ptr<const void> held{};

  /// Returns reductions that hold what they refer to, for a call that returns before it is done.
  LevelReductions kept() const {
    LevelReductions kept = *this;
    kept.held = copy(by);
    kept.by = kept.held.get();
    return kept;
  }
};

}  // namespace ccl::detail
