#include "base/plan_check.hpp"

namespace ccl::detail {

const char* broken_rule(const Plan& plan) {
  const auto power_of_two = [](Index n) { return n > 0 && (n & (n - 1)) == 0; };
  if (plan.channels < 1 || plan.channels > 4096) return "channels are 1 to 4096";
  if (plan.slot_count < 2 || !power_of_two(plan.slot_count)) {
    return "slots are a power of two, and at least 2";
  }
  if (plan.slot_bytes <= 0 || plan.slot_bytes % 128 != 0) {
    return "slot bytes are a multiple of 128";
  }
  if (plan.channel_bytes < 0) return "bytes of a channel are not below 0";
  if (!power_of_two(plan.slice_steps)) return "steps of a slice are a power of two";
  // Lanes count the bytes of a slice in an int.
  if (plan.slot_bytes > (Index{1} << 30) / plan.slice_steps) return "a slice is at most 1 GiB";
  if (plan.chunk_steps < plan.slice_steps || plan.chunk_steps % plan.slice_steps != 0) {
    return "a chunk is one slice or several whole ones";
  }
  // Ranks send a chunk before they receive. They then need room for the data that they forward
  // before they take the peer's.
  if (plan.slot_count / 2 < plan.chunk_steps) return "the slots hold at least two chunks";
  // Lanes count the elements of a chunk in an int, too.
  if (plan.slot_bytes > (Index{1} << 30) / plan.chunk_steps) return "a chunk is at most 1 GiB";
  return nullptr;
}

}  // namespace ccl::detail
