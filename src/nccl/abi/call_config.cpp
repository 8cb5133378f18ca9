#include "nccl/abi/call_config.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "nccl/abi/config.hpp"

namespace ccl::detail::nccl {
namespace {

constexpr int unset = NCCL_CONFIG_UNDEF_INT;
constexpr std::size_t first_size = 64;  // bytes of NCCL 2.31's structure

Result<void> refused(std::string what) {
  return fail(Errc::invalid_argument, std::move(what));
}

Result<ncclCollConfig_t> whole(const ncclCollConfig_t& given) {
  ncclCollConfig_t all = NCCL_COLLCONFIG_INITIALIZER;
  if (!is_begun(given, first_size)) {
    return fail(Errc::invalid_argument,
                "the call's config was not begun with NCCL_COLLCONFIG_INITIALIZER; begin it so");
  }
  copy_known(all, given);
  if (all.forceAlgSelection != 0 && all.forceAlgSelection != 1) {
    return fail(Errc::invalid_argument,
                fmt::format("config.forceAlgSelection is {}; set 0 or 1", all.forceAlgSelection));
  }
  if (all.CTAPolicy != unset && (all.CTAPolicy < 0 || all.CTAPolicy > 3)) {
    return fail(Errc::invalid_argument,
                fmt::format("config.CTAPolicy is {}; set 0 to 3", all.CTAPolicy));
  }
  return all;
}

void log_unused(const ncclCollConfig_t& all) {
  constexpr const char* no_multicast = "host operations do not use NVLink multicast unless named";
  constexpr const char* no_clusters = "a communicator's config sets it for all calls";
  const auto log = [](bool set, const char* member, const char* why) {
    if (set) log_without_effect("the call's config", member, why);
  };
  log(all.minCTAs != unset && all.minCTAs < 1, "minCTAs", "it is less than 1");
  log(all.maxCTAs != unset && all.maxCTAs < 1, "maxCTAs", "it is less than 1");
  log(all.nvlsCTAs != unset, "nvlsCTAs", no_multicast);
  log(all.cgaClusterSize != unset, "cgaClusterSize", no_clusters);
}

/// Bounds on the blocks of the call. As in NCCL, a number below 1 is no error.
ChannelBounds blocks_of(const ncclCollConfig_t& all) {
  ChannelBounds bounds;
  if (all.minCTAs >= 1) bounds.least = cut_least(all.minCTAs);
  if (all.maxCTAs >= 1) bounds.most = cut_most(all.maxCTAs);
  if (!bounds.most && all.CTAPolicy != unset) bounds.most = max_blocks_by(all.CTAPolicy);
  return bounds;
}

/// Reads ccl's own options. Those of other vendors are theirs.
Result<void> read_own(const ncclConfigExt_t* first, CallOptions& options) {
  bool second = false;
  for (const ncclConfigExt_t *at = first, *slow = first; at != nullptr; at = at->next) {
    if (std::exchange(second, !second)) slow = slow->next;  // half as fast
    if (at->next == slow) return refused("config.ext is a circle; end it with next = NULL");
    if (at->key.vendorId != ccl_vendor) continue;
    if (at->key.optionId != deterministic_option) {
      return refused(fmt::format("ccl has no option {} of a call; it has {} (deterministic)",
                                 at->key.optionId, int(deterministic_option)));
    }
    if (at->val.i != 0 && at->val.i != 1) {
      return refused(fmt::format("ccl's option {} (deterministic) is {}; set 0 or 1",
                                 int(deterministic_option), at->val.i));
    }
    options.deterministic = at->val.i == 1;
  }
  return {};
}

}  // namespace

Result<void> read_call_config(const ncclCollConfig_t* given, Call& call) {
  if (given == nullptr) return {};
  CCL_TRY(const ncclCollConfig_t all, whole(*given));
  auto options = std::make_shared<CallOptions>();
  CCL_CHECK(read_own(all.ext, *options));
  if (all.algSelection != nullptr) options->algorithms = upper(all.algSelection);
  options->must_select = all.forceAlgSelection == 1;
  options->blocks = blocks_of(all);
  if (all.CTAPolicy != unset) {
    options->zero_blocks = (all.CTAPolicy & NCCL_CTA_POLICY_ZERO) != 0;
  }
  options->started = all.launchCompletionEvent;
  options->profiler_tag = all.userProfilerTag;
  log_unused(all);
  call.options = std::move(options);
  return {};
}

}  // namespace ccl::detail::nccl
