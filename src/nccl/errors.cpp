#include <ccl/comm/log.hpp>
#include <ccl/detail/base/exceptions.hpp>

#include <cstring>
#include <mutex>

#include "base/fork_mutex.hpp"
#include "nccl/api.hpp"

namespace ccl::detail::nccl {
namespace {

char last[2048] = "";  // callers keep the pointer, so it never moves
ForkMutex last_mutex{[] { last[0] = '\0'; }};

}  // namespace

ncclResult_t number_of(Errc code) {
  switch (code) {
    case Errc::ok:
      return ncclSuccess;
    case Errc::invalid_argument:
    case Errc::overflow:
      return ncclInvalidArgument;
    case Errc::invalid_usage:
    case Errc::mismatch:
    case Errc::bad_setting:
    case Errc::not_supported:
      return ncclInvalidUsage;
    case Errc::cuda:
      return ncclUnhandledCudaError;
    case Errc::no_transport:
    case Errc::out_of_memory:
    case Errc::over_budget:
    case Errc::system:
    case Errc::network:
    case Errc::refused:
      return ncclSystemError;
    case Errc::timed_out:
    case Errc::peer_lost:
    case Errc::aborted:
      return ncclRemoteError;
    case Errc::in_progress:
      return ncclInProgress;
    case Errc::no_device_code:
    case Errc::internal:
      break;
  }
  return ncclInternalError;
}

ncclResult_t tell(const Result<void>& result) noexcept {
  if (result) return ncclSuccess;
  const Error& error = result.error();
  // Without memory for the whole line, the short text of the error.
  const auto text = without_exceptions([&]() -> Result<std::string> { return error.message(); });
  const char* const line = text ? text->c_str() : error.what.c_str();
  log_warn(LogPart::coll, "{}", line);
  const std::lock_guard lock{last_mutex};
  std::strncpy(last, line, sizeof last - 1);
  return number_of(error.code);
}

}  // namespace ccl::detail::nccl

using namespace ccl::detail::nccl;

const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a CUDA call failed (ncclGetLastError says more)";
    case ncclSystemError:
      return "a call of the system or of the network failed (ncclGetLastError says more)";
    case ncclInternalError:
      return "an error inside of ccl";
    case ncclInvalidArgument:
      return "an argument cannot be so (ncclGetLastError says more)";
    case ncclInvalidUsage:
      return "a call that does not go here, or that ccl does not have (ncclGetLastError says more)";
    case ncclRemoteError:
      return "another rank failed, was lost or aborted (ncclGetLastError says more)";
    case ncclInProgress:
      return "it is not done yet";
    default:
      return "no result of NCCL's";
  }
}
const char* ncclGetLastError(ncclComm_t) {
  return last;
}

// The variables of the log are read again.
void ncclResetDebugInit() {
  ccl::log_reload();
}
void pncclResetDebugInit() {
  ccl::log_reload();
}

CCL_NCCL_ALSO_P(ncclGetErrorString);
CCL_NCCL_ALSO_P(ncclGetLastError);
