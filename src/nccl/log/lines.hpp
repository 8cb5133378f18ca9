#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nccl/abi/operations.hpp"

namespace ccl::detail::nccl {

// Lines of NCCL's log that people and tools look for. Their fields are NCCL's.

/// Rank of a communicator in the log. `handle` is the program's.
struct LoggedRank {
  const void* handle = nullptr;
  int rank = 0, ranks = 0, device = -1;
  std::int64_t bus_id = -1;
  std::uint64_t id = 0;  // equal on all ranks
  std::string origin;    // how the communicator was derived from another one; empty: it was not

  /// Logs a stage of the rank, such as "Init COMPLETE". `what` is the function; empty: none.
  void log_stage(const char* what, const char* stage) const;
  /// Logs that the creation begins, in which this rank is rank `as` of `of`.
  void log_start(const char* function, int as, int of) const;
  /// Logs a call and its arguments (COLL). `number` counts the communicator's calls.
  void log_call(const Call& call, std::uint64_t number) const;
};

/// Returns `operations`, each collective of which logs what it runs by, if that is logged (TUNING).
std::unique_ptr<Operations> log_choices(std::unique_ptr<Operations> operations);

}  // namespace ccl::detail::nccl
