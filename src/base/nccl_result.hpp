#pragma once

#include <ccl/types/error.hpp>

namespace ccl::detail {

/// Release of NCCL whose interface and protocols ccl follows.
inline constexpr int nccl_version_code = 23203;
inline constexpr const char* nccl_version = "2.32.3";

/// Returns NCCL's number of an error, as its functions return it and its tools read it.
constexpr int nccl_result(Errc code) {
  constexpr int success = 0, cuda_error = 1, system_error = 2, internal_error = 3,
                invalid_argument = 4, invalid_usage = 5, remote_error = 6, in_progress = 7;
  switch (code) {
    case Errc::ok:
      return success;
    case Errc::invalid_argument:
    case Errc::overflow:
    case Errc::not_a_number:
      return invalid_argument;
    case Errc::invalid_usage:
    case Errc::mismatch:
    case Errc::bad_setting:
    case Errc::not_supported:
      return invalid_usage;
    case Errc::cuda:
      return cuda_error;
    case Errc::no_transport:
    case Errc::out_of_memory:
    case Errc::over_budget:
    case Errc::system:
    case Errc::network:
    case Errc::refused:
      return system_error;
    case Errc::timed_out:
    case Errc::peer_lost:
    case Errc::aborted:
      return remote_error;
    case Errc::in_progress:
      return in_progress;
    case Errc::no_device_code:
    case Errc::internal:
      break;
  }
  return internal_error;
}

}  // namespace ccl::detail
