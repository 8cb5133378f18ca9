#pragma once

#include <ccl/types/plan.hpp>

#include <string>

namespace ccl {

/// Composition that a call of some size would run, and the reason. Obtaining it runs nothing.
struct Choice {
  std::string composition;  ///< "Ring/LL128"
  Plan plan;                ///< plan of the composition
  int channels = 1;         ///< channels that a call of this size uses, at most
  int lanes = 1;            ///< lanes of one channel: threads of a GPU, or one CPU thread
  Index chunk_bytes = 0;
  double us = 0;  ///< predicted time
  /// True: `us` is from a table of measurements; false: from the cost model.
  bool measured = false;
  std::string why;
  std::string runner_up;  ///< second-fastest composition; empty: there is no other
  double runner_up_us = 0;

  /// Returns all members in one line.
  std::string text() const;
};

}  // namespace ccl
