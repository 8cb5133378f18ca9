#include <ccl/comm/log.hpp>
#include <ccl/detail/base/exceptions.hpp>

#include <array>
#include <cstring>
#include <mutex>
#include <string>

#include "base/fork_mutex.hpp"
#include "base/nccl_result.hpp"
#include "nccl/api.hpp"

namespace ccl::detail::nccl {
namespace {

using Text = std::array<char, 2048>;

Text last{};  // of the process
ForkMutex last_mutex{[] { last[0] = '\0'; }};

/// Errors of a thread. Callers keep the pointer to `returned`, which only this thread changes.
struct OfThread {
  Text own{}, returned{};
  bool failed = false;  // the thread's last call
};
OfThread& of_thread() {
  static thread_local OfThread mine;
  return mine;
}

/// Calls take(line). Without memory for the whole line, with the short text of the error.
template <class Take>
void with_line(const Error& error, Take take) noexcept {
  const auto line = without_exceptions([&]() -> Result<std::string> { return error.message(); });
  take(line ? line->c_str() : error.what.c_str());
}

void copy_line(Text& to, const char* line) noexcept {
  to = {};
  std::strncpy(to.data(), line, to.size() - 1);
}

}  // namespace

ncclResult_t number_of(Errc code) {
  static_assert(nccl_version_code == NCCL_VERSION_CODE);
  static_assert(nccl_result(Errc::internal) == ncclInternalError &&
                nccl_result(Errc::in_progress) == ncclInProgress);
  return ncclResult_t(nccl_result(code));
}

ncclResult_t tell(const Result<void>& result) noexcept {
  of_thread().failed = !result;
  if (result) return ncclSuccess;
  const Error& error = result.error();
  with_line(error, [](const char* line) {
    log_warn(LogPart::coll, "{}", line);
    copy_line(of_thread().own, line);
  });
  const std::lock_guard lock{last_mutex};
  last = of_thread().own;
  return number_of(error.code);
}

void keep_text(const Error& error) noexcept {
  with_line(error, [](const char* line) {
    const std::lock_guard lock{last_mutex};
    copy_line(last, line);
  });
}

}  // namespace ccl::detail::nccl

using namespace ccl::detail::nccl;

// The first words are those that programs look for.
const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error: a CUDA call failed (ncclGetLastError says more)";
    case ncclSystemError:
      return "unhandled system error: a call of the system or of the network failed "
             "(ncclGetLastError says more)";
    case ncclInternalError:
      return "internal error: an error inside of ccl";
    case ncclInvalidArgument:
      return "invalid argument: an argument cannot be so (ncclGetLastError says more)";
    case ncclInvalidUsage:
      return "invalid usage: a call that does not go here, or that ccl does not have "
             "(ncclGetLastError says more)";
    case ncclRemoteError:
      return "remote error: another rank failed, was lost or aborted (ncclGetLastError says more)";
    case ncclInProgress:
      return "in progress: it is not done yet";
    case ncclTimeout:
      return "timeout: it took longer than its limit (ncclGetLastError says more)";
    default:
      return "no result of NCCL's";
  }
}
const char* ncclGetLastError(ncclComm_t) {
  auto& mine = of_thread();
  if (mine.failed) {
    mine.returned = mine.own;
  } else {
    const std::lock_guard lock{last_mutex};
    mine.returned = last;
  }
  return mine.returned.data();
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
