// NCCL's communicators at rest, and the memory that they hold.
#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include "nccl/api.hpp"

namespace ccl::detail::nccl {
namespace {

/// Bytes of GPU memory of a communicator. All of it stays while it is suspended.
Index gpu_bytes(const Member& member, const Communicator& comm) {
  return member.device >= 0 ? comm.memory_used() : 0;
}

Result<void> submit(ncclComm_t comm, Result<void> (Member::*step)()) {
  CCL_TRY(auto member, member_of(comm));
  CCL_CHECK(member->ready());
  Member& whose = *member;
  return Group::of_this_thread().submit(std::move(member),
                                        [&whose, step] { return (whose.*step)(); });
}

}  // namespace
}  // namespace ccl::detail::nccl

using namespace ccl::detail::nccl;

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
  return answer_in_group([&]() -> ccl::Result<void> {
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(const auto ready, member->ready());
    if ((flags & NCCL_SUSPEND_MEM) == 0) return {};
    const ccl::Index stays = gpu_bytes(*member, ready);
    if (stays > 0) {
      ccl::log_warn(ccl::LogPart::alloc,
                    "ncclCommSuspend: {} bytes of GPU memory stay allocated (ccl gives none back)",
                    stays);
    }
    return submit(comm, &Member::suspend);
  });
}
ncclResult_t ncclCommResume(ncclComm_t comm) {
  return answer_in_group([&] { return submit(comm, &Member::resume); });
}

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, std::uint64_t* value) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(value, "value"));
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(const auto ready, member->ready());
    switch (stat) {
      case ncclStatGpuMemSuspend:
        *value = 0;
        return {};
      case ncclStatGpuMemSuspended:
        *value = member->is_suspended() ? 1 : 0;
        return {};
      case ncclStatGpuMemPersist:
      case ncclStatGpuMemTotal:
        *value = std::uint64_t(gpu_bytes(*member, ready));
        return {};
    }
    return ccl::fail(ccl::Errc::invalid_argument,
                     fmt::format("there is no statistic {}; there are 0 to 3", int(stat)));
  });
}

CCL_NCCL_ALSO_P(ncclCommSuspend);
CCL_NCCL_ALSO_P(ncclCommResume);
CCL_NCCL_ALSO_P(ncclCommMemStats);
