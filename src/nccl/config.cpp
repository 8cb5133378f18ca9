#include "nccl/config.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace ccl::detail::nccl {
namespace {

/// Configuration of a program that gives none. Programs for NCCL may use several communicators at
/// once, so launches are in the order of calls unless the setting says otherwise.
Result<Config> default_config() {
  Config config;
  CCL_TRY(const Index order, setting_integer("LAUNCH_ORDER_IMPLICIT"));
  config.implicit_launch_order = order != 0;
  return config;
}

/// Value of a member that NCCL's configuration has since 2.31.
int launch_order_of(const auto& given) {
  if constexpr (requires { given.launchOrderImplicit; }) {
    return given.launchOrderImplicit;
  } else {
    return NCCL_CONFIG_UNDEF_INT;
  }
}

}  // namespace

Result<Config> read_config(const ncclConfig_t* given, const Config* otherwise) {
  if (given == nullptr && otherwise != nullptr) return *otherwise;
  CCL_TRY(Config wanted, default_config());
  if (given == nullptr) return wanted;
  ncclConfig_t all = NCCL_CONFIG_INITIALIZER;
  if (given->magic != all.magic || given->size < offsetof(ncclConfig_t, blocking)) {
    return fail(Errc::invalid_argument,
                "config was not begun with NCCL_CONFIG_INITIALIZER; begin it so");
  }
  std::memcpy(&all, given, std::min(given->size, sizeof all));
  constexpr int unset = NCCL_CONFIG_UNDEF_INT;
  if (all.blocking != unset && all.blocking != 0 && all.blocking != 1) {
    return fail(Errc::invalid_argument,
                fmt::format("config.blocking is {}; set 0 or 1", all.blocking));
  }
  if (all.blocking != unset) wanted.blocking = all.blocking != 0;
  if (all.minCTAs != unset) wanted.min_channels = all.minCTAs;
  if (all.maxCTAs != unset) wanted.max_channels = all.maxCTAs;
  if (all.commName != nullptr) wanted.name = all.commName;
  if (const int order = launch_order_of(all); order != unset) {
    wanted.implicit_launch_order = order != 0;
  }
  return wanted;
}

}  // namespace ccl::detail::nccl
