#include "nccl/abi/config.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "settings/report.hpp"

namespace ccl::detail::nccl {
namespace {

constexpr int unset = NCCL_CONFIG_UNDEF_INT;
constexpr int any = INT_MAX;
constexpr const char* used = nullptr;
constexpr int max_class = 255;  // of traffic

/// Member of the configuration, with the values that NCCL takes.
struct Member {
  const char* name;
  int ncclConfig_t::*at;
  int least, most;
  const char* without_effect = used;  // the reason
  // First version that has the member, where an older structure of the same size has padding.
  unsigned since = 0;
};
constexpr const char* no_sharing = "every communicator has resources of its own";
constexpr const char* own_plan = "ccl chooses by its cost model";
constexpr const char* no_multicast = "host operations do not use NVLink multicast unless named";

constexpr Member members[] = {
    {"blocking", &ncclConfig_t::blocking, 0, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 0, 8, used, 21700},
    {"minCTAs", &ncclConfig_t::minCTAs, 1, any},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 1, any},
    {"splitShare", &ncclConfig_t::splitShare, 0, 1, no_sharing},
    {"trafficClass", &ncclConfig_t::trafficClass, INT_MIN, any, used, 22600},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 0, 1,
     "NCCL_COLLNET_ENABLE sets it for the process"},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, 0, 3},
    {"shrinkShare", &ncclConfig_t::shrinkShare, 0, 1, no_sharing},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 1, any, no_multicast},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 1, 64},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 0, 1, own_plan},
    {"graphUsageMode", &ncclConfig_t::graphUsageMode, 0, 2, "graphs and calls may be mixed"},
    {"numRmaCtx", &ncclConfig_t::numRmaCtx, 0, any},
    {"maxP2pPeers", &ncclConfig_t::maxP2pPeers, 1, any, "pairs connect at their first message"},
    {"graphStreamOrdering", &ncclConfig_t::graphStreamOrdering, 0, 1,
     "calls of a communicator are always in order", 23005},
    {"launchOrderImplicit", &ncclConfig_t::launchOrderImplicit, 0, 1},
    {"numRmaSig", &ncclConfig_t::numRmaSig, 0, any},
    {"rmaEagerInit", &ncclConfig_t::rmaEagerInit, 0, 1},
    {"hostCftMode", &ncclConfig_t::hostCftMode, 1, 3, "ccl does not use CFT"},
    {"nvlsHostMode", &ncclConfig_t::nvlsHostMode, 0, any, no_multicast},
};

Result<void> refused(const char* name, int value, const std::string& valid) {
  return fail(Errc::invalid_argument,
              fmt::format("config.{} is {}; set {}, or leave it as NCCL_CONFIG_INITIALIZER has it",
                          name, value, valid));
}

Result<void> check(const Member& one, const ncclConfig_t& config) {
  const int value = config.*one.at;
  if (value == unset || (value >= one.least && value <= one.most)) return {};
  if (one.most == any) return refused(one.name, value, fmt::format("{} or more", one.least));
  return refused(one.name, value,
                 one.least + 1 == one.most ? fmt::format("{} or {}", one.least, one.most)
                                           : fmt::format("{} to {}", one.least, one.most));
}

/// Copies what the caller's version has of the structure.
Result<ncclConfig_t> whole(const ncclConfig_t& given) {
  ncclConfig_t all = NCCL_CONFIG_INITIALIZER;
  if (!is_begun(given, offsetof(ncclConfig_t, blocking))) {
    return fail(Errc::invalid_argument,
                "config was not begun with NCCL_CONFIG_INITIALIZER; begin it so");
  }
  copy_known(all, given);
  for (const Member& one : members) {
    if (all.version < one.since) all.*one.at = unset;
    CCL_CHECK(check(one, all));
  }
  if (all.minCTAs != unset && all.maxCTAs != unset && all.minCTAs > all.maxCTAs) {
    return fail(Errc::invalid_argument,
                fmt::format("config.minCTAs is {} and config.maxCTAs {}; let the first be at most "
                            "the second",
                            all.minCTAs, all.maxCTAs));
  }
  if (all.graphStreamOrdering == 0 && all.graphUsageMode != 0 && all.graphUsageMode != 1) {
    return fail(Errc::invalid_argument,
                "config.graphStreamOrdering is 0, which needs config.graphUsageMode 0 or 1");
  }
  return all;
}

void log_unused(const ncclConfig_t& all) {
  for (const Member& one : members) {
    if (one.without_effect != used && all.*one.at != unset) {
      log_without_effect("config", one.name, one.without_effect);
    }
  }
  if (all.trafficClass != unset && (all.trafficClass < 0 || all.trafficClass > max_class)) {
    log_without_effect("config", "trafficClass", "RDMA packets have one of 0 to 255");
  }
  if (all.netName != nullptr) {
    log_without_effect("config", "netName", "NCCL_NET names the network of the process");
  }
}

Result<void> check_signals(const MemberConfig& wanted) {
  constexpr std::int64_t max_signals = 1 << 16;
  if (std::int64_t{wanted.signal_contexts} * wanted.signals <= max_signals) return {};
  const bool by_setting = setting_given("NUM_RMA_CTX");
  return fail(by_setting ? Errc::bad_setting : Errc::invalid_argument,
              fmt::format("{} is {} and config.numRmaSig {}; let their product be at most {}",
                          by_setting ? variable_of("NUM_RMA_CTX") : "config.numRmaCtx",
                          wanted.signal_contexts, wanted.signals, max_signals));
}

/// Sets what a policy of NCCL says, where nothing else limits the blocks.
void follow(int policy, MemberConfig& wanted) {
  wanted.zero_blocks = (policy & NCCL_CTA_POLICY_ZERO) != 0;
  if (wanted.max_channels || setting_given("MAX_CTAS")) return;
  wanted.max_channels = max_blocks_by(policy);
  if (wanted.max_channels) {
    wanted.max_channels = std::max(*wanted.max_channels, wanted.min_channels.value_or(1));
  }
}

/// Returns the policy of CCL_CTA_POLICY; nothing if it is not set.
Result<std::optional<int>> policy_of_setting() {
  constexpr std::string_view names[] = {"default", "efficiency", "zero"};  // 0, 1, 2
  CCL_TRY(const std::string text, setting_text("CTA_POLICY"));
  if (text.empty()) return std::optional<int>{};
  int policy = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('|', at), text.size());
    const std::string part = plain(std::string_view{text}.substr(at, end - at));
    const auto known = std::ranges::find(names, part);
    if (known != std::end(names)) {
      policy |= int(known - names);
    } else if (part.size() == 1 && part[0] >= '0' && part[0] <= '3') {
      policy |= part[0] - '0';
    } else {
      const std::string variable{variable_of("CTA_POLICY")};
      std::string what = fmt::format(
          "{} is {} (\"{}\" is no policy); give DEFAULT, EFFICIENCY or ZERO, joined by "
          "|, or 0 to 3",
          variable, text, part);
      if (!variable.starts_with("NCCL_")) return fail(Errc::bad_setting, std::move(what));
      log_warn(LogPart::env, "{}; it is left out", what);  // as other values of NCCL's
      return std::optional<int>{};
    }
    at = end + 1;
  }
  return std::optional{policy};
}

/// Configuration of a program that gives none. Programs for NCCL may use several communicators at
/// once, so launches are in the order of calls unless the setting says otherwise.
Result<MemberConfig> default_config() {
  MemberConfig config;
  CCL_TRY(const Index order, setting_integer("LAUNCH_ORDER_IMPLICIT"));
  config.implicit_launch_order = order != 0;
  CCL_TRY(const Index blocking, setting_integer("COMM_BLOCKING"));
  config.blocking = blocking != 0;
  if (setting_given("NUM_RMA_CTX")) {
    CCL_TRY(const Index contexts, setting_integer("NUM_RMA_CTX"));
    config.signal_contexts = int(contexts);
  }
  CCL_TRY(const Index early, setting_integer("RMA_EAGER_INIT"));
  config.early_signals = early > 0;
  return config;
}

}  // namespace

void log_without_effect(const char* of, const char* member, const char* why) {
  static std::mutex mutex;
  static auto* const named = new std::set<std::string>;  // until the process ends
  std::string text = fmt::format("{}.{}", of, member);
  {
    const std::lock_guard lock{mutex};
    if (!named->insert(text).second) return;
  }
  log_info(LogPart::init, "{} is set and has no effect ({})", text, why);
}

Result<MemberConfig> read_config(const ncclConfig_t* given, const MemberConfig* otherwise) {
  if (given == nullptr && otherwise != nullptr) return *otherwise;
  CCL_TRY(MemberConfig wanted, default_config());
  CCL_TRY(const std::optional<int> policy, policy_of_setting());
  if (given == nullptr) {
    if (policy) follow(*policy, wanted);
    return wanted;
  }
  CCL_TRY(const ncclConfig_t all, whole(*given));
  log_unused(all);
  const auto take = [](int value, const char* setting, auto& where) {
    if (value != unset && !(setting != nullptr && setting_given(setting))) where = value;
  };
  int blocking = wanted.blocking ? 1 : 0, early = wanted.early_signals ? 1 : 0;
  std::optional<int> order;
  CCL_TRY(const Index fixed, setting_integer("COMM_BLOCKING"));
  if (fixed < 0) take(all.blocking, nullptr, blocking);
  take(cut_least(all.minCTAs), "MIN_CTAS", wanted.min_channels);
  take(cut_most(all.maxCTAs), "MAX_CTAS", wanted.max_channels);
  if (policy || all.CTAPolicy != unset) follow(policy.value_or(all.CTAPolicy), wanted);
  take(all.cgaClusterSize, "CGA_CLUSTER_SIZE", wanted.cluster_blocks);
  take(all.nChannelsPerNetPeer, "NCHANNELS_PER_NET_PEER", wanted.net_channels);
  if (all.trafficClass >= 0 && all.trafficClass <= max_class) {
    take(all.trafficClass, "IB_TC", wanted.traffic_class);
  }
  take(all.numRmaCtx, "NUM_RMA_CTX", wanted.signal_contexts);
  take(all.numRmaSig, nullptr, wanted.signals);
  CCL_CHECK(check_signals(wanted));
  CCL_TRY(const Index eager, setting_integer("RMA_EAGER_INIT"));
  if (eager < 0) take(all.rmaEagerInit, nullptr, early);
  take(all.launchOrderImplicit, "LAUNCH_ORDER_IMPLICIT", order);
  wanted.blocking = blocking != 0;
  wanted.early_signals = early != 0;
  if (order) wanted.implicit_launch_order = *order != 0;
  if (all.commName != nullptr) wanted.name = all.commName;
  if (all.netName != nullptr) wanted.net_name = all.netName;
  wanted.given = all;
  wanted.given.commName = wanted.given.netName = nullptr;  // which are the program's
  return wanted;
}

}  // namespace ccl::detail::nccl
