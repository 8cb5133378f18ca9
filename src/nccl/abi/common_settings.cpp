#include "nccl/abi/common_settings.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "comm/part_rules.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "nccl/abi/part_rules.hpp"

namespace ccl::detail::nccl {
namespace {

/// Returns the first rank whose value differs from that of rank 0; -1: there is none.
int first_other(const std::vector<SettingsPart>& all, std::int16_t SettingsPart::*value) {
  const auto other = std::ranges::find_if(
      all, [&](const SettingsPart& one) { return one.*value != all[0].*value; });
  return other == all.end() ? -1 : int(other - all.begin());
}

}  // namespace

Result<CommonSettings> common_settings(const Communicator& comm, const CommonSettings& own) {
  const auto wanted = setting_flag("DETERMINISTIC");
  if (comm.ranks() == 1) {
    CCL_TRY(const bool one_order, wanted);
    return CommonSettings{one_order, own.zero_blocks, own.fallback};
  }
  constexpr std::int16_t bad = 2;  // a setting that cannot be must not leave the others waiting
  CommState& state = *Access::state(comm);
  std::vector<SettingsPart> all(std::size_t(comm.ranks()));
  all[std::size_t(comm.rank())] = {wanted ? std::int16_t(*wanted) : bad, std::int16_t(own.fallback),
                                   std::int16_t(own.zero_blocks)};
  const auto lock = state.rendezvous.lock();
  CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index{sizeof(SettingsPart)}, {}, {"CCL_DETERMINISTIC"})));
  CCL_CHECK(check_gathered(state, all,
                           [](const SettingsPart& of, int) { return wrong_settings_part(of); }));
  if (const int rank = first_other(all, &SettingsPart::one_order); rank >= 0) {
    Error error{Errc::mismatch,
                fmt::format("CCL_DETERMINISTIC is {} on rank 0 and {} on rank {}; set it alike on "
                            "all ranks",
                            all[0].one_order, all[std::size_t(rank)].one_order, rank)};
    error.peer = rank;
    const Result<void> mine = fail(wanted ? std::move(error) : wanted.error());
    // No rank ends its communicator before all know the difference.
    (void)all_agree(state, "CCL_DETERMINISTIC", mine);
    return fail(mine.error());
  }
  CommonSettings common = own;
  CCL_TRY(common.one_order, wanted);
  if (const int rank = first_other(all, &SettingsPart::zero_blocks); rank >= 0) {
    common.zero_blocks = false;
    if (comm.rank() == 0) {
      log_warn(LogPart::init,
               "the communicator does without NCCL_CTA_POLICY_ZERO, which is its policy on rank {} "
               "and not on rank {}; give all ranks the same config.CTAPolicy or NCCL_CTA_POLICY",
               own.zero_blocks ? 0 : rank, own.zero_blocks ? rank : 0);
    }
  }
  if (const int rank = first_other(all, &SettingsPart::fallback); rank >= 0) {
    common.fallback = false;
    if (comm.rank() == 0) {
      log_warn(LogPart::init,
               "no rank of the communicator falls back to NCCL (CCL_NCCL_FALLBACK names one on "
               "rank {}, and none that can be loaded on rank {}); set it alike on all ranks",
               own.fallback ? 0 : rank, own.fallback ? rank : 0);
    }
  }
  return common;
}

}  // namespace ccl::detail::nccl
