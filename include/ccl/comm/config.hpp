#pragma once

#include <ccl/types/word.hpp>

#include <optional>
#include <string>

namespace ccl {

/// Options of a communicator. An unset option takes the value of its setting. All ranks must give
/// the same options, except `name` and `device`.
struct Config {
  /// No GPU: data is in CPU memory.
  static constexpr int cpu = -1;
  /// The device of the thread's CUDA context, in a program with device code (<ccl/ccl.cuh>). If the
  /// thread has no context, it is the device of the rank's number on its host (`from_env`,
  /// `create_all`), or the first. Without device code or GPU it is `cpu`.
  static constexpr int automatic = -2;

  bool blocking = true;                  // false: create returns at once; see `Communicator::wait`
  std::optional<bool> check;             // compare every call's arguments between ranks (CCL_CHECK)
  std::optional<double> timeout_s;       // of a wait without progress; 0: no limit (CCL_TIMEOUT)
  std::optional<double> init_timeout_s;  // of creation (CCL_INIT_TIMEOUT)
  std::optional<Index> memory_budget_bytes;       // of wires and scratch (CCL_MEMORY_BUDGET)
  std::optional<int> channels;                    // of every composition; unset: the plan's choice
  std::optional<int> min_channels, max_channels;  // limits on that choice (CCL_MIN_CTAS, _MAX_CTAS)
  int device = automatic;                         // CUDA device
  std::string tune_file;                          // measurements to choose by (CCL_TUNE_FILE)
  std::string name;                               // for messages
};

}  // namespace ccl
