#pragma once

#include <ccl/types/word.hpp>

#include <string>
#include <string_view>

namespace ccl {

/// What went wrong, by kind. Values are stable and at most 255: a status word carries one.
enum class Errc : int {
  ok = 0,
  invalid_argument,  // a value that can never work: null pointer, bad root, count overflow
  invalid_usage,     // a call at the wrong time: after finalize, within another group
  mismatch,          // ranks disagree on operation, count, type, root or size
  bad_setting,       // an unknown CCL_ name or a value out of range
  no_transport,      // no transport of the composition connects this edge
  no_device_code,    // the composition has no kernel in this program
  out_of_memory,     // an allocation failed
  over_budget,       // the communicator's memory budget does not hold what was asked
  system,            // a system call failed; `os_code` is errno
  cuda,              // a CUDA call failed; `os_code` is the cudaError_t or CUresult
  network,           // a connection failed or was refused
  refused,           // a stranger or a wrong secret
  timed_out,         // no progress within the deadline
  peer_lost,         // a rank died or closed its connections
  aborted,           // someone called abort
  in_progress,       // asynchronous creation has not ended
  not_supported,     // the machine cannot do it
  internal,          // a bug in ccl
  overflow           // a count that lay in memory is larger than what there is room for
};

/// "timed_out", "peer_lost", ...: the enumerator's name.
std::string_view name(Errc code);

/// Why a call failed. `what` is one sentence: problem (why) what would help.
struct Error {
  Errc code = Errc::internal;
  std::string what;
  int rank = -1;            // the rank that reports; -1 if it is not known yet
  int peer = -1;            // the rank at fault or at the other end; -1 if none
  int os_code = 0;          // errno, cudaError_t, ibv status: see `code`
  std::string host{};       // of `rank`; empty if unknown
  std::string transport{};  // name of the transport at fault; empty if none

  /// "rank 3 on node7: timed_out: ... (peer 5, transport shm, os 110)".
  std::string message() const;
};

}  // namespace ccl
