#pragma once

#include <ccl/choose/forward.hpp>
#include <ccl/types/word.hpp>

#include <string>
#include <vector>

namespace ccl {

// Levels of a `Pipeline`: who takes part in a stage. docs/pipelines.md has pictures.

/// All ranks of the communicator.
struct World {
  static constexpr const char* name = "World";
};
/// The ranks of one host, in the order of their numbers.
struct IntraNode {
  static constexpr const char* name = "IntraNode";
};
/// A rail: the n-th ranks of all hosts, hosts in the order of their lowest ranks. Hosts then need
/// equally many ranks.
struct InterNode {
  static constexpr const char* name = "InterNode";
};

/// A stage of a `Pipeline`: `Collective<Op, Algo, Proto, Transport>` among the ranks of a level.
template <class Level, class Op, class Algo = Auto, class Proto = Auto,
          class Transport = DefaultTransport>
struct On {};

/// A stage of a `Pipeline`: each element through a functor `U operator()(const T&) const`, CCL_HD
/// and trivially copyable. `Convert<U>` is one.
template <class F>
struct Map {};

/// What a call of a `Pipeline` would run.
struct PipelinePlan {
  struct Stage {
    std::string runs;       // "reduce_scatter/Ring/Simple/any on IntraNode", "map convert"
    int ranks = 1;          // of the level
    Index in = 0, out = 0;  // elements of this rank, in one pass
  };
  std::vector<Stage> stages;
  Index passes = 1;  // of at most so many elements, one after the other
  /// A line for each stage.
  std::string text() const;
};

}  // namespace ccl
