#pragma once

#include "rendezvous.hpp"
#include "side.hpp"

namespace ccl::perf {

/// One rank of one group.
struct Position {
  const Options& options;
  const Mode& mode;
  const std::string& nccl_library;
  Rendezvous& rendezvous;
  int rank = 0, ranks = 1;
  int socket = -1;  // orders come here, replies go there
};

/// Does what it is told until the other end is gone or says leave. Ends the process when an order
/// takes far too long: a GPU that hangs must not be held.
void play(const Position& position);

}  // namespace ccl::perf
