// NCCL's communicators at rest, and the memory that they hold.
#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <mutex>
#include <optional>

#include "comm/edges/memory_rest.hpp"
#include "comm/rank_results.hpp"
#include "nccl/api.hpp"
#include "nccl/fallback/rank.hpp"

namespace ccl::detail::nccl {

namespace {

/// Gives the memory of a revoked communicator back. Its ranks agree over another one.
Result<void> rest_revoked(const Communicator& comm, const Config& config) {
  CommState& state = *Access::state(comm);
  constexpr const char* who = "ncclCommSuspend";
  if (comm.ranks() == 1) return rest_failed_memory(state, state, who);
  CCL_TRY(const Communicator again, comm.shrink({}, Shrink::keep_parent, config));
  CCL_CHECK(rest_failed_memory(state, *Access::state(again), who));
  return again.finalize();
}

}  // namespace

Result<void> Member::suspend() {
  std::optional<Communicator> comm;
  bool revoked = false;
  {
    const std::lock_guard lock{mutex_};
    CCL_CHECK(check_not_finalized());
    if (suspended_) return fail(Errc::invalid_usage, "the communicator is suspended already");
    comm = comm_;
    revoked = revoked_;
  }
  CommState& state = *Access::state(*comm);
  if (const auto bytes = gpu_bytes(state); bytes.can_rest < bytes.all) {
    log_warn(
        LogPart::alloc,
        "ncclCommSuspend: {} of {} bytes of GPU memory stay allocated (a NIC or a communicator "
        "for kernels has them, or they have no cuMem handle: CCL_CUMEM_ENABLE)",
        bytes.all - bytes.can_rest, bytes.all);
  }
  if (revoked) {
    CCL_CHECK(rest_revoked(*comm, config));
  } else {
    CCL_CHECK(rest_memory(state, "ncclCommSuspend"));
    if (const auto fallback = real()) fallback->suspend();
  }
  const std::lock_guard lock{mutex_};
  suspended_ = true;
  return {};
}

Result<void> Member::resume() {
  std::optional<Communicator> comm;
  {
    const std::lock_guard lock{mutex_};
    CCL_CHECK(check_lives());
    if (!suspended_) {
      return fail(Errc::invalid_usage,
                  "the communicator is not suspended; call ncclCommSuspend before");
    }
    comm = comm_;
  }
  CommState& state = *Access::state(*comm);
  CCL_CHECK(wake_memory(state, "ncclCommResume"));
  if (const auto fallback = real()) {
    const auto resumed = fallback->resume();
    if (comm->ranks() == 1) {
      CCL_CHECK(resumed);
    } else {
      const auto lock = state.rendezvous.lock();
      CCL_CHECK(all_agree(state, "ncclCommResume", resumed));
    }
  }
  const std::lock_guard lock{mutex_};
  suspended_ = false;
  return {};
}

namespace {

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
    CCL_CHECK(member->ready());
    if ((flags & NCCL_SUSPEND_MEM) == 0) return {};
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
    const auto bytes = ccl::detail::gpu_bytes(*ccl::detail::Access::state(ready));
    switch (stat) {
      case ncclStatGpuMemSuspend:
        *value = std::uint64_t(bytes.can_rest);
        return {};
      case ncclStatGpuMemSuspended:
        *value = member->is_suspended() ? 1 : 0;
        return {};
      case ncclStatGpuMemPersist:
        *value = std::uint64_t(bytes.all - bytes.can_rest);
        return {};
      case ncclStatGpuMemTotal:
        *value = std::uint64_t(bytes.all);
        return {};
    }
    return ccl::fail(ccl::Errc::invalid_argument,
                     fmt::format("there is no statistic {}; there are 0 to 3", int(stat)));
  });
}

CCL_NCCL_ALSO_P(ncclCommSuspend);
CCL_NCCL_ALSO_P(ncclCommResume);
CCL_NCCL_ALSO_P(ncclCommMemStats);
