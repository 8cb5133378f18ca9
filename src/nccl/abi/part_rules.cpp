#include "nccl/abi/part_rules.hpp"

#include <climits>

#include "base/field_check.hpp"
#include "net/message_rules.hpp"

namespace ccl::detail::nccl {

std::string wrong_tuner_presence(TunerPart part) {
  return FieldCheck{}.flag("presence of a tuner plug-in", part).why();
}

std::string wrong_tuner_answer(TunerPart part, int entries) {
  return FieldCheck{}.in_range("answer of a tuner plug-in", part, -1, entries - 1).why();
}

std::string wrong_grow_part(const GrowPart& part, int ranks) {
  return FieldCheck{}
      .in_range("number of ranks", part.ranks, ranks + 1, net::max_ranks)
      .flag("presence of an id", part.has_id)
      .why();
}

std::string wrong_settings_part(const SettingsPart& part) {
  return FieldCheck{}
      .in_range("CCL_DETERMINISTIC", part.one_order, 0, 2)
      .flag("CCL_NCCL_FALLBACK", part.fallback)
      .flag("NCCL_CTA_POLICY_ZERO", part.zero_blocks)
      .why();
}

std::string wrong_fallback_part(const FallbackPart& part) {
  return FieldCheck{}.in_range("version of NCCL", part.version, 1, INT_MAX).why();
}

}  // namespace ccl::detail::nccl
