#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "comm/observe/call_counters.hpp"

namespace ccl::detail::health {

/// Counts of how often a running operation was found waiting for another rank, by operation.
/// Samples cost nothing in the path of a call.
struct WaitSamples {
  std::map<std::string, std::pair<Word, Word>> by_operation;  // running, and of these waiting
};

/// Counts of one communicator of this process, copied from its counters.
struct CommMetrics {
  Word hash = 0;
  std::string name;
  int rank = 0, ranks = 0, nodes = 0, device = -1;
  double ns_per_tick = 0;  // 0: its calls have no durations
  struct Cell {
    int operation = 0, size_class = 0;
    Word calls = 0, bytes = 0, ended = 0, ticks = 0, failed = 0;
  };
  std::vector<Cell> cells;  // those with calls
  WaitSamples waits;
  /// Copy of `ConnectionCounts`.
  struct Connections {
    int open = 0;
    Index bytes = 0;
    Word made = 0, closed = 0;
  } connections;
};

/// Copies the cells with calls.
std::vector<CommMetrics::Cell> cells_of(const CallCounters& counters);

/// Events of the networks of one process.
struct NetworkCounts {
  Word retries = 0, failovers = 0;
  std::string node;  // name of the process's host
  int pid = 0;
};

/// Prometheus text (version 0.0.4) of the communicators of this process. Each name has a HELP and a
/// TYPE line.
std::string metrics_text(const std::vector<CommMetrics>& all, const NetworkCounts& network);

/// Names of all metrics that `metrics_text` can write.
std::vector<std::string_view> metric_names();

/// Upper bound of a class of sizes: "256", "1048576", "+Inf" for larger, "unknown".
std::string class_label(int size_class);

}  // namespace ccl::detail::health
