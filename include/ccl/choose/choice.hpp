#pragma once

#include <ccl/types/plan.hpp>

#include <string>

namespace ccl {

/// What a call of some size runs, and why; nothing of it has run.
struct Choice {
  std::string composition;  // "Ring/LL128"
  Plan plan;                // of the composition
  int channels = 1;         // that this size keeps busy, at most
  int lanes = 1;            // that work on one channel: threads of a GPU, or one of a CPU
  Index chunk_bytes = 0;
  double us = 0;          // predicted
  bool measured = false;  // by a table of measurements, not by the model
  std::string why;
  std::string runner_up;  // empty: there was no other
  double runner_up_us = 0;

  /// All of it in one line.
  std::string text() const;
};

}  // namespace ccl
