#pragma once

#include "rendezvous.hpp"
#include "side.hpp"

namespace ccl::perf {

/// Rank of one group.
struct Position {
  const Options& options;
  const Mode& mode;
  const std::string& nccl_library;
  Rendezvous& rendezvous;
  int rank = 0, ranks = 1;
  int socket = -1;  // receives orders and sends replies
};

/// Executes orders until the other end closes or sends leave. Ends the process if an order exceeds
/// its deadline, because a GPU that hangs must be released.
void play(const Position& position);

}  // namespace ccl::perf
