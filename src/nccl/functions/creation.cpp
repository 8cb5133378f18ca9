#include "nccl/functions/creation.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fork_mutex.hpp"
#include "base/log_style.hpp"
#include "base/made_once.hpp"
#include "base/text.hpp"
#include "nccl/api.hpp"
#include "nccl/device/devices.hpp"
#include "nccl/log/layout.hpp"
#include "nccl/plug_in/env.hpp"
#include "nccl/plug_in/profiler.hpp"
#include "settings/report.hpp"
#include "transport/plug_in/presence.hpp"

namespace ccl::detail::nccl {

UniqueId id_of(const ncclUniqueId& given) {
  UniqueId id;
  static_assert(sizeof id.bytes == sizeof given.internal);
  std::memcpy(id.bytes.data(), given.internal, sizeof given.internal);
  return id;
}

namespace {

/// Returns the id that NCCL_COMM_ID stands for, if it is set.
Result<std::optional<UniqueId>> id_of_setting() {
  CCL_TRY(const std::string address, setting_text("COMM_ID"));
  if (address.empty()) return std::optional<UniqueId>{};
  auto id = unique_id_at(address, "NCCL_COMM_ID");
  if (id) return std::optional{*id};
  id.error().what = fmt::format("{}: {}", variable_of("COMM_ID"), id.error().what);
  return fail(std::move(id).error());
}

/// Name of a family of ranks whose id may be used again, equal on all ranks: they create such
/// communicators in one order.
std::string family_of(const UniqueId& id, int rank) {
  struct Uses {
    std::map<std::pair<std::string, int>, int> all;
    ForkMutex mutex{[this] { renew(all); }};
  };
  static constinit MadeOnce<Uses> uses;
  const std::string text = id.to_string();
  const std::lock_guard lock{uses.get().mutex};
  return fmt::format("{} {}", text, uses.get().all[{text, rank}]++);
}

}  // namespace

Result<UniqueId> new_id() {
  CCL_TRY(const auto fixed, id_of_setting());
  return fixed ? *fixed : create_unique_id();
}

Result<void> check_rank(int rank, int ranks) {
  if (ranks >= 1 && rank >= 0 && rank < ranks) return {};
  return fail(Errc::invalid_argument,
              fmt::format("rank {} of {} cannot be; ranks are numbered from 0 to one less than how "
                          "many there are",
                          rank, ranks));
}

namespace {

/// Names the subsystems of NCCL that the program asks for and of which ccl has no lines.
void log_silent_subsystems() {
  const auto given = setting_text("DEBUG_SUBSYS");
  if (!given || given->starts_with('^')) return;
  const std::string asked = "," + upper(*given) + ",";
  std::string silent;
  for (const char* const name : {"CALL", "NVLS", "REG", "PROFILE", "RAS"}) {
    if (asked.find(fmt::format(",{},", name)) == asked.npos) continue;
    silent += fmt::format("{}{}", silent.empty() ? "" : ", ", name);
  }
  if (silent.empty()) return;
  log_as_nccl(LogLevel::version, LogPart::init,
              fmt::format("{} names {}, which ccl accepts and has no lines for (calls are COLL, "
                          "registered buffers INIT)",
                          variable_of("DEBUG_SUBSYS"), silent));
}

/// As NCCL, names the version once if a level of the log is given.
void log_version(int rank) {
  static std::atomic<bool> logged{false};
  if (rank != 0 || !setting_given("DEBUG") || logged.exchange(true)) return;
  log_as_nccl(LogLevel::version, LogPart::init,
              fmt::format("NCCL version {}.{}.{} by ccl", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
  log_silent_subsystems();
}

}  // namespace

Result<void> bring_up(Member& whose, const char* function,
                      const std::function<Result<Communicator>()>& make) {
  CCL_CHECK(whose.create(make));
  return complete(whose, function);
}

Result<void> complete(Member& whose, const char* function) {
  if (const auto ready = whose.ready()) log_layout(*ready);
  whose.logged().log_stage(function, "Init COMPLETE");
  return whose.config.early_signals ? whose.make_signals() : Result<void>{};
}

Result<void> join(ncclComm_t* comm, int ranks, std::span<const ncclUniqueId> given, int rank,
                  const ncclConfig_t* config, const char* function,
                  const std::function<void(MemberConfig&)>& change) {
  CCL_CHECK(check_given(comm, "comm"));
  *comm = nullptr;
  load_env_plug_in();
  look_for_default_net_plug_in();
  prepare_profiler();
  CCL_TRY(MemberConfig wanted, read_config(config));
  if (change) change(wanted);
  CCL_CHECK(check_rank(rank, ranks));
  log_version(rank);
  std::vector<UniqueId> ids;
  for (const auto& one : given) ids.push_back(id_of(one));
  if (ids.empty()) return fail(Errc::invalid_argument, "there is no id; pass one or more");
  if (ids.size() > std::size_t(ranks)) {
    return fail(
        Errc::invalid_argument,
        fmt::format("there are {} ids for {} ranks; pass at most one for each", ids.size(), ranks));
  }
  const int device = current_device();
  wanted.device = device >= 0 ? device : Config::automatic;
  CCL_TRY(const auto fixed, id_of_setting());
  const bool is_fixed = fixed && *fixed == ids.front();
  const bool opens_root = is_fixed && rank == 0 && ranks > 1;
  auto member = std::make_shared<Member>(
      device, wanted, is_fixed ? family_of(*fixed, rank) : ids.front().to_string());
  *comm = new_handle(member);
  Member& whose = *member;
  whose.logged().log_start(fmt::format("[Rank {}] {}", rank, function).c_str(), rank, ranks);
  wanted.blocking = false;  // the member waits
  return Group::of_this_thread().submit(std::move(member), [=, &whose] {
    return bring_up(whose, function, [&]() -> Result<Communicator> {
      if (opens_root) CCL_CHECK(ccl::start_root(ids.front(), rank));
      return Communicator::create(ids, rank, ranks, wanted);
    });
  });
}

/// The parent's bootstrap is in use until all ranks have joined, so calls of a parent's rank run in
/// their order, as on the other ranks.
Result<void> derive(std::shared_ptr<Member> parent, const MemberConfig& wanted, Derived what,
                    ncclComm_t* made, const std::function<Result<void>(Member&)>& create) {
  auto member = std::make_shared<Member>(parent->device, wanted, std::move(what.family),
                                         parent->count_child(what.color, what.key));
  *made = new_handle(member);
  Member& whose = *member;
  return Group::of_this_thread().submit(
      std::move(parent), [&whose, create] { return create(whose); }, std::move(member));
}

}  // namespace ccl::detail::nccl
