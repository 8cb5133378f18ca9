#pragma once

#include <ccl/choose/forward.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

#include <string>
#include <vector>

CCL_ANY_SPACE_BEGIN

namespace ccl {

// Levels of a `Pipeline`: the ranks that take part in a stage. docs/guide/pipelines.md has figures.

/// All ranks of the communicator.
struct World {
  static constexpr const char* name = "World";
};
/// The ranks of one host, in the order of their numbers.
struct IntraNode {
  static constexpr const char* name = "IntraNode";
};
/// A rail: the n-th ranks of all hosts, hosts in the order of their lowest ranks. All hosts must
/// have the same number of ranks.
struct InterNode {
  static constexpr const char* name = "InterNode";
};

/// A stage of a `Pipeline`: `Collective<Op, Algo, Proto, Transport>` among the ranks of a level.
template <class Level, class Op, class Algo = Auto, class Proto = Auto,
          class Transport = DefaultTransport>
struct On {};

/// Stage of a `Pipeline` that applies a functor to each element: `U operator()(const T&) const`,
/// CCL_HD and trivially copyable. `Convert<U>` is one.
template <class F>
struct Map {};

/// Predicted passes and stages of a call of a `Pipeline`.
struct PipelinePlan {
  struct Stage {
    std::string runs;       // "reduce_scatter/Ring/Simple/any on IntraNode", "map convert"
    int ranks = 1;          // ranks of the level
    Index in = 0, out = 0;  // elements of this rank in one pass
  };
  std::vector<Stage> stages;
  Index passes = 1;  // number of passes, which run one after another
  /// Returns a line for each stage.
  std::string text() const;
};

}  // namespace ccl

CCL_ANY_SPACE_END
