// NCCL's communicators: creation, end and queries.
#include <ccl/comm/unique_id.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/creation/child_start.hpp"
#include "comm/state.hpp"
#include "nccl/api.hpp"
#include "nccl/device/devices.hpp"
#include "nccl/functions/creation.hpp"
#include "nccl/plug_in/env.hpp"

namespace ccl::detail::nccl {
namespace {

/// Splits a communicator, also one that was revoked. `begun`: see `ChildStart`.
Result<std::optional<Communicator>> split_of(const Member& whole, const Communicator& from,
                                             int color, int key, const Config& wanted,
                                             const ChildStart::Begun& begun = {}) {
  if (!whole.is_revoked()) {
    const ChildStart start{begun};
    return from.split(color, key, wanted);
  }
  CCL_TRY(const Communicator again, from.shrink({}, Shrink::keep_parent, wanted));
  const ChildStart start{begun};
  auto part = again.split(color, key, wanted);
  if (part) CCL_CHECK(again.finalize());  // a rank that left earlier would fail the others' split
  return part;
}

Result<void> split(ncclComm_t comm, int color, int key, ncclComm_t* made,
                   const ncclConfig_t* config) {
  CCL_CHECK(check_given(made, "newcomm"));
  *made = nullptr;
  CCL_TRY(const auto parent, member_of(comm));
  CCL_TRY(const MemberConfig wanted, read_config(config, &parent->config));
  CCL_TRY(const Communicator from, parent->ready());
  Member& whole = *parent;
  std::string family = fmt::format("{} {}", parent->next_family("split"), color);
  if (color < 0) {
    (void)parent->count_child(color, key);  // as on the other ranks
    return Group::of_this_thread().submit(parent, [&whole, from, color, key]() -> Result<void> {
      CCL_TRY(const auto none, split_of(whole, from, color, key, {}));
      return {};
    });
  }
  return derive(parent, wanted, {std::move(family), color, key}, made,
                [&whole, from, color, key, wanted](Member& whose) {
                  return bring_up(whose, "ncclCommSplit", [&]() -> Result<Communicator> {
                    const auto logs = [&whose](int rank, int ranks) {
                      whose.logged().log_start("ncclCommSplit", rank, ranks);
                    };
                    CCL_TRY(auto child, split_of(whole, from, color, key, wanted, logs));
                    if (child) return *std::move(child);
                    return fail(Errc::internal, "a rank with a color got no communicator");
                  });
                });
}

Result<void> shrink(ncclComm_t comm, std::span<const int> given, int flags, ncclComm_t* made,
                    const ncclConfig_t* config) {
  CCL_CHECK(check_given(made, "newcomm"));
  *made = nullptr;
  CCL_TRY(const auto parent, member_of(comm));
  CCL_TRY(const MemberConfig wanted, read_config(config, &parent->config));
  if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT) {
    return fail(
        Errc::invalid_argument,
        fmt::format("shrinkFlags are {}; pass NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT", flags));
  }
  CCL_TRY(const Communicator from, parent->ready());
  CCL_CHECK(surviving_ranks(from.rank(), from.ranks(), given));  // before other ranks wait
  const bool aborts = flags == NCCL_SHRINK_ABORT;
  // The step below would run behind deferred calls, which may wait for an excluded rank for ever.
  if (aborts && parent->is_busy()) {
    Access::state(from)->rendezvous.fail_all(
        {Errc::aborted, "ncclCommShrink was called with NCCL_SHRINK_ABORT", -1, from.rank()});
  }
  std::vector<int> excluded(given.begin(), given.end());
  std::ranges::sort(excluded);
  excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
  std::string family = parent->next_family(fmt::format("without {}", fmt::join(excluded, " ")));
  return derive(parent, wanted, {std::move(family), 0, from.rank()}, made,
                [&whole = *parent, from, excluded, aborts, wanted](Member& whose) {
                  const auto how = aborts ? Shrink::abort_parent : Shrink::keep_parent;
                  auto shrunk = whose.create_for_all([&] {
                    const ChildStart logs{[&whose](int rank, int ranks) {
                      whose.logged().log_start("ncclCommShrink", rank, ranks);
                    }};
                    return from.shrink(excluded, how, wanted);
                  });
                  if (aborts && !from.status()) whole.abandon();
                  return shrunk ? complete(whose, "ncclCommShrink") : shrunk;
                });
}

/// Sets `where` to f(communicator), once the communicator is ready.
template <class F>
ncclResult_t ask(ncclComm_t comm, int* where, const char* what, F&& f) {
  return answer([&]() -> Result<void> {
    CCL_CHECK(check_given(where, what));
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(const auto ready, member->ready());
    *where = f(ready);
    return {};
  });
}

}  // namespace
}  // namespace ccl::detail::nccl

using namespace ccl::detail::nccl;

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(id, "id"));
    load_env_plug_in();
    CCL_TRY(const auto made, new_id());
    std::memcpy(id->internal, made.bytes.data(), sizeof id->internal);
    return {};
  });
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return answer_in_group([&] {
    return join(comm, ranks, {&id, 1}, rank, nullptr, "ncclCommInitRank");
  });
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return answer_in_group([&] {
    return join(comm, ranks, {&id, 1}, rank, config, "ncclCommInitRankConfig");
  });
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                      ncclUniqueId* ids, ncclConfig_t* config) {
  return answer_in_group([&] {
    const std::size_t count = ids == nullptr || id_count < 0 ? 0 : std::size_t(id_count);
    return join(comm, ranks, {ids, count}, rank, config, "ncclCommInitRankScalable");
  });
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int ranks, const int* devices) {
  return answer_in_group([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(comms, "comms"));
    if (ranks < 0) {
      return ccl::fail(ccl::Errc::invalid_argument,
                       fmt::format("ndev is {}; pass how many ranks there are to be", ranks));
    }
    load_env_plug_in();
    CCL_TRY(const auto made, ccl::create_unique_id());
    ncclUniqueId id;
    std::memcpy(id.internal, made.bytes.data(), sizeof id.internal);
    const int before = current_device();
    auto& group = Group::of_this_thread();
    group.start();
    ccl::Result<void> good;
    for (int rank = 0; rank < ranks && good; ++rank) {
      if (before >= 0) good = set_device(devices != nullptr ? devices[rank] : rank);
      if (good) good = join(&comms[rank], ranks, {&id, 1}, rank, nullptr, "ncclCommInitAll");
    }
    if (before >= 0) (void)set_device(before);
    if (!good) group.spoil(good.error());
    return group.end();
  });
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  return answer_in_group([&] { return split(comm, color, key, made, config); });
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* made,
                            ncclConfig_t* config, int flags) {
  return answer_in_group([&]() -> ccl::Result<void> {
    if (count < 0 || (excluded == nullptr && count > 0)) {
      return ccl::fail(
          ccl::Errc::invalid_argument,
          fmt::format(
              "excludeRanksList is {} for {} ranks; pass the ranks to exclude, and how many",
              excluded == nullptr ? "null" : "given", count));
    }
    return shrink(comm, {excluded, std::size_t(count)}, flags, made, config);
  });
}

// As in NCCL, a null communicator has ended: a rank without a color has no other.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return answer_in_group([&]() -> ccl::Result<void> {
    if (comm == nullptr) return {};
    CCL_TRY(auto member, member_of(comm));
    if (member->is_revoked()) {
      return ccl::fail(ccl::Errc::invalid_argument,
                       "the communicator was revoked; destroy it, or abort it");
    }
    CCL_CHECK(member->ready());
    Member& whole = *member;
    return Group::of_this_thread().submit(std::move(member), [&whole] { return whole.finalize(); });
  });
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return answer([&]() -> ccl::Result<void> {
    if (comm == nullptr) return {};
    CCL_TRY(const auto member, member_of(comm));
    const LoggedRank rank = member->logged();
    rank.log_stage("", "Destroy START");
    // The program may leave at once: nobody can ask for the end of one that does not block.
    const auto held = member->blocking ? nullptr : hold_exit();
    // A communicator that is still being created stays, and can be aborted.
    if (member->created()) CCL_CHECK(take_from(comm));
    if (member->is_revoked()) member->abandon();
    if (!member->created()) return member->end(EndWaits::own_work);
    const auto end = [rank](Member& whose) -> ccl::Result<void> {
      CCL_CHECK(whose.end(EndWaits::own_work));
      rank.log_stage("", "Destroy COMPLETE");
      return {};
    };
    if (!member->blocking) {
      return member->defer([held, member, end] { return end(*member); });
    }
    member->wait_deferred();
    return end(*member);
  });
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return answer([&]() -> ccl::Result<void> {
    if (comm == nullptr) return {};
    CCL_TRY(auto member, take_from(comm));
    const LoggedRank rank = member->logged();
    rank.log_stage("", "Abort START");
    member->abort();
    rank.log_stage("", "Abort COMPLETE");
    Group::of_this_thread().release(std::move(member));
    return {};
  });
}
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto member, member_of(comm));
    if (flags != 0) {
      return ccl::fail(ccl::Errc::invalid_argument, fmt::format("flags are {}; pass 0", flags));
    }
    return member->revoke();
  });
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(state, "asyncError"));
    CCL_TRY(const auto member, member_of(comm));
    const auto status = member->status();
    *state = status ? ncclSuccess : number_of(status.error().code);
    if (*state != ncclSuccess && *state != ncclInProgress) keep_text(status.error());
    return {};
  });
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return ask(comm, count, "count", [](const auto& ready) { return ready.ranks(); });
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return ask(comm, rank, "rank", [](const auto& ready) { return ready.rank(); });
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return ask(comm, device, "device", [](const auto& ready) { return ready.device(); });
}
ncclResult_t ncclGetVersion(int* version) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(version, "version"));
    *version = NCCL_VERSION_CODE;  // version of this interface
    return {};
  });
}

CCL_NCCL_ALSO_P(ncclGetUniqueId);
CCL_NCCL_ALSO_P(ncclCommInitRank);
CCL_NCCL_ALSO_P(ncclCommInitRankConfig);
CCL_NCCL_ALSO_P(ncclCommInitRankScalable);
CCL_NCCL_ALSO_P(ncclCommInitAll);
CCL_NCCL_ALSO_P(ncclCommSplit);
CCL_NCCL_ALSO_P(ncclCommShrink);
CCL_NCCL_ALSO_P(ncclCommFinalize);
CCL_NCCL_ALSO_P(ncclCommDestroy);
CCL_NCCL_ALSO_P(ncclCommAbort);
CCL_NCCL_ALSO_P(ncclCommRevoke);
CCL_NCCL_ALSO_P(ncclCommGetAsyncError);
CCL_NCCL_ALSO_P(ncclCommCount);
CCL_NCCL_ALSO_P(ncclCommUserRank);
CCL_NCCL_ALSO_P(ncclCommCuDevice);
CCL_NCCL_ALSO_P(ncclGetVersion);
