#include "nccl/fallback/rank.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "comm/part_rules.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "nccl/abi/part_rules.hpp"
#include "nccl/device/devices.hpp"

namespace ccl::detail::nccl {
namespace {

Result<void> check_versions(const std::vector<FallbackPart>& all) {
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].version == all[0].version) continue;
    return fail(Errc::mismatch,
                fmt::format("CCL_NCCL_FALLBACK names NCCL {} on rank 0 and {} on rank {}",
                            all[0].version, all[r].version, r));
  }
  return {};
}

struct Windows {
  std::map<ncclWindow_t, std::weak_ptr<const RealRank>> all;
  ForkMutex mutex{[this] { renew(all); }};
};
Windows& windows() {
  static constinit MadeOnce<Windows> all;
  return all.get();
}

}  // namespace

Result<std::shared_ptr<RealRank>> RealRank::create(const Communicator& comm,
                                                   const RealNccl& library,
                                                   const MemberConfig& config) {
  CommState& state = *Access::state(comm);
  std::shared_ptr<RealRank> made{new RealRank{library, comm}};
  std::vector<FallbackPart> all(std::size_t(comm.ranks()));
  FallbackPart& mine = all[std::size_t(comm.rank())];
  mine.version = library.version;
  Result<void> done;
  if (comm.rank() == 0) {
    done = library.check(library.GetUniqueId(&mine.id), "ncclGetUniqueId", nullptr);
  }
  const auto agree = [&](const char* on) -> Result<void> {
    if (comm.ranks() == 1) return done;
    const auto lock = state.rendezvous.lock();
    return all_agree(state, on, done);
  };
  if (comm.ranks() > 1) {
    const auto lock = state.rendezvous.lock();
    CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
        all.data(), Index{sizeof(FallbackPart)}, {}, {"CCL_NCCL_FALLBACK"})));
    CCL_CHECK(check_gathered(state, all,
                             [](const FallbackPart& of, int) { return wrong_fallback_part(of); }));
  }
  if (done) done = check_versions(all);
  done = agree("the id of NCCL's communicator");
  if (done) {
    done = made->join(all[0].id, config);
    done = agree("NCCL's communicator");
  }
  if (done) return made;
  made->abort();
  CCL_CHECK(comm.status());
  log_warn(LogPart::init, "no rank of the communicator falls back to NCCL: {}", done.error().what);
  return std::shared_ptr<RealRank>{};
}

RealRank::RealRank(const RealNccl& library, const Communicator& beside)
    : library_{library},
      beside_{beside},
      device_{beside.device()},
      limit_s_{Access::state(beside)->limits.timeout_s} {}

// Not blocking, so that no wait is longer than ccl's. An earlier version reads the members that it
// has.
Result<void> RealRank::join(const ncclUniqueId& id, const MemberConfig& asked) {
  const auto text = [](const std::string& from) { return from.empty() ? nullptr : from.c_str(); };
  constexpr ncclConfig_t newest = NCCL_CONFIG_INITIALIZER;
  ncclConfig_t config = asked.given;
  config.size = newest.size;
  config.version = std::min(newest.version, unsigned(library_.version));
  config.blocking = 0;
  config.netName = text(asked.net_name);
  config.commName = text(asked.name);
  const OnDevice here{device_};
  ncclComm_t real = nullptr;
  const auto begun =
      library_.CommInitRankConfig(&real, beside_.ranks(), id, beside_.rank(), &config);
  comm_ = real;
  // Half of the time in which the other ranks wait for this one's result.
  const double limit_s = Access::state(beside_)->limits.init_timeout_s / 2;
  return finish(begun, "ncclCommInitRankConfig", limit_s);
}

Result<void> RealRank::finish(ncclResult_t code, const char* name, double limit_s) const {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (;;) {
    const ncclComm_t comm = comm_;
    if (code != ncclInProgress) return library_.check(code, name, comm);
    if (comm == nullptr) return fail(Errc::aborted, fmt::format("{} was aborted", name));
    if (limit_s > 0 && Clock::now() - begin > std::chrono::duration<double>(limit_s)) {
      return fail(Errc::timed_out,
                  fmt::format("{} of the NCCL that CCL_NCCL_FALLBACK names has not ended in {} s; "
                              "its own log may say why (NCCL_DEBUG=INFO)",
                              name, limit_s));
    }
    CCL_CHECK(beside_.status());
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    const auto asked = library_.CommGetAsyncError(comm, &code);
    if (asked != ncclSuccess) code = asked;
  }
}

RealRank::~RealRank() {
  abort();
}

void RealRank::suspend() {
  const auto done = call(library_.CommSuspend, "ncclCommSuspend", comm(), NCCL_SUSPEND_MEM);
  suspended_ = done.has_value();
  if (!done) log_warn(LogPart::alloc, "GPU memory of it stays: {}", done.error().what);
}
Result<void> RealRank::resume() {
  if (!suspended_) return {};
  CCL_CHECK(call(library_.CommResume, "ncclCommResume", comm()));
  suspended_ = false;
  return {};
}

void RealRank::end_by(ncclResult_t (*how)(ncclComm_t)) {
  const ncclComm_t comm = comm_.exchange(nullptr);
  if (comm == nullptr) return;
  const OnDevice here{device_};
  const auto code = how(comm);  // which NCCL may finish behind the call
  if (code == ncclInProgress) return;
  if (auto ended = library_.check(code, "the end of a communicator", nullptr); !ended) {
    log_warn(LogPart::init, "{}", ended.error().what);
  }
}
void RealRank::end() {
  end_by(library_.CommDestroy);
}
void RealRank::abort() {
  end_by(library_.CommAbort);
}

Result<void> RealRank::lacks(const char* name) const {
  return fail(Errc::not_supported,
              fmt::format("neither ccl nor the NCCL {} that CCL_NCCL_FALLBACK names has {}; name a "
                          "later one",
                          library_.version, name));
}

std::shared_ptr<const RealRank> maker_of(ncclWindow_t window) {
  const std::lock_guard lock{windows().mutex};
  const auto found = windows().all.find(window);
  if (found == windows().all.end()) return nullptr;
  auto rank = found->second.lock();
  if (rank != nullptr && rank->comm() != nullptr) return rank;
  windows().all.erase(found);  // ended with its communicator
  return nullptr;
}
void keep_window(const std::shared_ptr<const RealRank>& rank, ncclWindow_t window) {
  const std::lock_guard lock{windows().mutex};
  windows().all[window] = rank;
}
void forget_window(ncclWindow_t window) {
  const std::lock_guard lock{windows().mutex};
  windows().all.erase(window);
}

}  // namespace ccl::detail::nccl
