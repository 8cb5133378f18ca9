#include "nccl/fallback/multicast.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "settings/environment.hpp"

namespace ccl::detail::nccl {

Result<void> keep_multicast_off() {
  CCL_TRY(const bool allowed, setting_flag("NVLS_ENABLE"));
  if (allowed) return {};
  constexpr const char* name = "NCCL_NVLS_ENABLE";
  if (add_variable(name, "0")) {
    log_info(LogPart::init,
             "NCCL_NVLS_ENABLE=0 is added to the environment for the NCCL of CCL_NCCL_FALLBACK, "
             "which would use NVLink multicast; CCL_NVLS_ENABLE=1 allows that");
  }
  const auto value = environment_value(name);  // that library asks an env plug-in, too
  if (value == "0") return {};
  const bool plugged = std::string_view{std::getenv(name)} == "0";
  return fail(
      Errc::bad_setting,
      fmt::format("CCL_NCCL_FALLBACK is without effect ({} gives {} for NCCL_NVLS_ENABLE, so "
                  "that NCCL may use NVLink multicast); let it give 0, or allow multicast "
                  "by CCL_NVLS_ENABLE=1",
                  plugged ? "the env plug-in" : "the environment", value ? *value : "no value"));
}

}  // namespace ccl::detail::nccl
