#include "compositions.hpp"

#include <fmt/format.h>

#include <utility>

namespace ccl::perf {

Result<const Runner*> Compositions::get(const Choice& choice) {
  const auto key = choice.name();
  if (const auto found = made_.find(key); found != made_.end()) return found->second.get();
  for (const Entry& entry : all_entries()) {
    if (entry.op != options_.op || entry.algo != choice.algo || entry.proto != choice.proto) {
      continue;
    }
    CCL_TRY(auto runner, entry.make(comm_, {}));
    if (options_.plan_given()) {
      Plan plan = runner->plan();
      if (options_.channels != 0) plan.channels = options_.channels;
      if (options_.slots != 0) plan.slot_count = options_.slots;
      if (options_.slot_bytes != 0) plan.slot_bytes = options_.slot_bytes;
      if (options_.slice_steps != 0) plan.slice_steps = options_.slice_steps;
      if (options_.chunk_steps != 0) plan.chunk_steps = options_.chunk_steps;
      made_[key + " as it is"] = std::move(runner);  // its peers may still be connecting to it
      CCL_TRY(runner, entry.make(comm_, plan));
      return (made_[key] = std::move(runner)).get();
    }
    return (made_[key] = std::move(runner)).get();
  }
  return fail(
      Errc::invalid_argument,
      fmt::format("{} does not run on {} (see `supports` in its header)", options_.op, key));
}

}  // namespace ccl::perf
