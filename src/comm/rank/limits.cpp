#include "comm/rank/limits.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "comm/rank/identity.hpp"
#include "gpu/devices.hpp"

namespace ccl::detail {

Result<void> CommLimits::check_values(const Identity& identity) const {
  const auto bad = [](const char* field, const auto& value, const char* accepts) {
    return fail(Errc::bad_setting,
                fmt::format("Config::{} is {} (it cannot be); give {}", field, value, accepts));
  };
  const auto seconds = [](double s) { return s >= 0 && s <= 1e9; };
  constexpr const char* of_seconds = "seconds, from 0 to 1e9";
  if (!seconds(timeout_s)) return bad("timeout_s", timeout_s, of_seconds);
  if (!seconds(init_timeout_s)) return bad("init_timeout_s", init_timeout_s, of_seconds);
  const Config& config = identity.config();
  if (config.device < Config::cpu) {
    return bad("device", config.device, "a CUDA device, Config::cpu or Config::automatic");
  }
  if (budget < 1) return bad("memory_budget_bytes", budget, "1 or more");
  // Too large a value is an error of all ranks, which the creation of a composition reports.
  const int channels = config.channels.value_or(1);
  if (channels < 1) return bad("channels", channels, "1 or more");
  const int net_channels = config.net_channels.value_or(1);
  if (net_channels < 1) return bad("net_channels", net_channels, "1 or more");
  const int cluster_size = config.cluster_blocks.value_or(0);
  if (cluster_size < 0 || cluster_size > 8) {  // what every GPU with clusters takes
    return bad("cluster_blocks", cluster_size, "0 to 8");
  }
  const int traffic_class = config.traffic_class.value_or(-1);
  if (traffic_class < -1 || traffic_class > 255) {  // queue pairs have a byte for it
    return bad("traffic_class", traffic_class, "0 to 255, or -1 for CCL_IB_TC");
  }
  return {};
}

Result<void> CommLimits::resolve(Identity& identity) {
  const Config& config = identity.config();
  CCL_TRY(check, config.check ? Result<bool>{*config.check} : setting_flag("CHECK"));
  CCL_TRY(timeout_s,
          config.timeout_s ? Result<double>{*config.timeout_s} : setting_seconds("TIMEOUT"));
  CCL_TRY(init_timeout_s, config.init_timeout_s ? Result<double>{*config.init_timeout_s}
                                                : setting_seconds("INIT_TIMEOUT"));
  if (config.device == Config::automatic) identity.set_device(choose_device(0));
  if (!config.memory_budget_bytes) {
    CCL_TRY(const Index given, setting_bytes("MEMORY_BUDGET"));
    if (given > 0) identity.set_memory_budget(given);
  }
  budget = config.memory_budget_bytes.value_or(Index{1} << 30);
  CCL_TRY(bounds, channel_bounds(config.min_channels, config.max_channels));
  CCL_CHECK(check_values(identity));
  CCL_TRY(const Index order, setting_integer("LAUNCH_ORDER_IMPLICIT"));
  implicit_launch_order = config.implicit_launch_order.value_or(order == 1);
  CCL_TRY(const Index cluster, setting_integer("CGA_CLUSTER_SIZE"));
  cluster_blocks = std::max(config.cluster_blocks.value_or(int(cluster)), 1);
  constexpr double no_limit_s = 1e8;
  if (init_timeout_s == 0) init_timeout_s = no_limit_s;
  return {};
}

}  // namespace ccl::detail
