#pragma once

#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

#include <string>
#include <string_view>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Kinds of errors. Values are stable and at most 255, because a status word carries one.
enum class Errc : int {
  ok = 0,
  invalid_argument,  ///< a value that is never valid: null pointer, bad root, count overflow
  invalid_usage,     ///< a call at the wrong time: after finalize, within another group
  mismatch,          ///< ranks disagree on operation, count, type, root or size
  bad_setting,       ///< an unknown CCL_ name or a value out of range
  no_transport,      ///< no transport of the composition connects this edge
  no_device_code,    ///< the composition has no kernel in this program
  out_of_memory,     ///< an allocation failed
  over_budget,       ///< the communicator's memory budget is too small for the request
  system,            ///< a system call failed; `os_code` is errno
  cuda,              ///< a CUDA call failed; `os_code` is the cudaError_t or CUresult
  network,           ///< a connection failed or was refused
  refused,           ///< a connection from outside the communicator, or a wrong secret
  timed_out,         ///< no progress within the deadline
  peer_lost,         ///< a rank died or closed its connections
  aborted,           ///< a rank called abort
  in_progress,       ///< asynchronous creation is not complete
  not_supported,     ///< the machine does not support the request
  internal,          ///< a bug in ccl
  overflow,          ///< a count read from memory is larger than the space for it
  not_a_number       ///< `Checked` has found a NaN in the input of a rank
};
namespace detail {
inline constexpr Errc last_errc = Errc::not_a_number;
}  // namespace detail

/// Returns the name of the enumerator, such as "timed_out" or "peer_lost".
std::string_view name(Errc code);

/// Description of a failed call. `what` is one sentence: the problem, the reason in parentheses,
/// and a remedy.
struct Error {
  Errc code = Errc::internal;
  std::string what;
  int rank = -1;            ///< rank that reports the error; -1 if it is not known
  int peer = -1;            ///< rank at fault or at the other end of the connection; -1 if none
  int os_code = 0;          ///< errno, cudaError_t or ibv status, depending on `code`; 0 if none
  std::string host{};       ///< host of `rank`; empty if unknown
  std::string transport{};  ///< name of the transport at fault; empty if none

  /// Returns the error as one line: "rank 3 on node7: timed_out: ... (peer 5, transport shm, os
  /// 110)".
  std::string message() const;
};

}  // namespace ccl

CCL_ANY_SPACE_END
