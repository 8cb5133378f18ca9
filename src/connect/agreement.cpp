#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "connect/device_state.hpp"

namespace ccl::detail {

namespace {
/// Of a plan, what no wire knows of: ranks that differ in it would make them, and then go through a
/// message by other steps than their peers.
struct PlanSignature {
  int channels = 0;  // 0: of a GPU, which need not agree where they address each other's memory
  int slice_steps = 0, chunk_steps = 0;
  Index channel_bytes = 0;
  bool operator==(const PlanSignature&) const = default;
};
std::string text_of(const PlanSignature& rounds) {
  const auto channels =
      rounds.channels > 0 ? fmt::format("{} channels", rounds.channels) : std::string{"channels"};
  return fmt::format("{} from {} bytes on, slices of {} and chunks of {} steps", channels,
                     rounds.channel_bytes, rounds.slice_steps, rounds.chunk_steps);
}

/// What a rank can take part in: how dear its dearest edge is, and the largest slots that it has
/// memory for, by plan; -1: not even for the smallest.
struct CreationInputs {
  Index medium = 0;
  std::array<Index, 3> slot_bytes{};
  std::array<PlanSignature, 3> rounds{};  // by plan
  Index budget = 0, used = 0;
  bool connects_on_demand = false;
  bool checks = false;  // its calls are compared with the others'
  RankResult verdict;   // on the plans
  char name[160]{};
};

}  // namespace

Result<void> Connections::agree(const Result<Plans>& wanted) {
  CommState& state = *Access::state(comm_);
  const int me = comm_.rank();
  std::vector<CreationInputs> all(comm_.ranks());
  CreationInputs& mine = all[me];
  const Plans plans = wanted ? *wanted : Plans{};
  const Result<void> planned = wanted ? Result<void>{} : fail(wanted.error());
  mine.verdict = verdict_of(planned);
  name_.copy(mine.name, sizeof mine.name - 1);
  mine.connects_on_demand = connects_on_demand_ && !device_;
  mine.checks = state.limits.check;
  int networked = 0;
  for (const PeerInfo& peer : state.identity.peers()) {
    if (peer.rank == me) continue;
    const Medium in = transport_table_.edge_transport(peer, state.identity.peers()[me]).medium;
    const Medium out = transport_table_.edge_transport(state.identity.peers()[me], peer).medium;
    mine.medium = std::max({mine.medium, Index(in), Index(out)});
    if (device_ && in == Medium::gpu_memory) device_->holds_slots = true;
    networked += int(out == Medium::network);
  }
  // What goes through a network has slots at both ends. A GPU rank's lie in its host's memory.
  if (!device_) fan_ += std::min(fan_, networked);
  // Slots shrink until this composition takes at most its part of the budget, and what is left:
  // half of one that was given, a sixteenth of the default one, so that many have room. All ranks
  // take the smallest that any of them needs.
  const Index part = state.identity.config().memory_budget_bytes ? state.limits.budget / 2
                                                                 : state.limits.budget / 16;
  mine.budget = state.limits.budget;
  mine.used = state.limits.used.load();
  const Index left = std::min(part, mine.budget - mine.used);
  for (std::size_t n = 0; n < plans.by_medium.size(); ++n) {
    Plan plan = plans.by_medium[n];
    while (plan.slot_bytes / 2 >= plans.min_slot_bytes && bytes_of(plan) > left) {
      plan.slot_bytes = plan.slot_bytes / 2 / 128 * 128;
    }
    mine.slot_bytes[n] = bytes_of(plan) > left ? -1 : plan.slot_bytes;
    mine.rounds[n] = {device_ ? 0 : plan.channels, plan.slice_steps, plan.chunk_steps,
                      plan.channel_bytes};
  }
  const auto lock = state.rendezvous.lock();
  CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index{sizeof(CreationInputs)}, {}, {"the creation of", name_})));
  for (int r = 0; r < comm_.ranks(); ++r) {
    if (std::string_view{all[r].name} == mine.name) continue;
    return state.rendezvous.disagree(
        fmt::format("rank {} creates {} where rank {} creates {} (all ranks must create the same "
                    "compositions in the same order)",
                    r, all[r].name, me, mine.name),
        r);
  }
  // Calls would wait for ever for those of a rank that compares nothing.
  for (int r = 0; r < comm_.ranks(); ++r) {
    if (all[r].checks == mine.checks) continue;
    return state.rendezvous.disagree(
        fmt::format("rank {} {} calls between ranks, rank {} {} (CCL_CHECK or Config::check "
                    "differs); set it alike on all ranks",
                    r, all[r].checks ? "compares" : "does not compare", me,
                    mine.checks ? "does" : "does not"),
        r);
  }
  std::vector<RankResult> verdicts;
  for (const CreationInputs& of : all) verdicts.push_back(of.verdict);
  CCL_CHECK(sum_up(state, name_, planned, verdicts));
  std::size_t medium = 0;
  for (const CreationInputs& of : all) {
    medium = std::max(medium, std::size_t(of.medium));
    connects_on_demand_ = connects_on_demand_ && of.connects_on_demand;
  }
  plan_ = plans.by_medium[medium];
  const auto refuse = [&](Error error) {            // on all ranks
    (void)state.rendezvous.bootstrap()->barrier();  // who leaves then does so after all have heard
    return fail(state.annotate(std::move(error)));
  };
  for (int r = 0; r < comm_.ranks(); ++r) {
    const PlanSignature &theirs = all[r].rounds[medium], &own = mine.rounds[medium];
    if (theirs == own) continue;
    return refuse(
        {Errc::mismatch,
         fmt::format("rank {} plans {} with {} where rank {} plans {}; give the same plan "
                     "and settings on all ranks",
                     r, name_, text_of(theirs), me, text_of(own)),
         -1, r});
  }
  const auto smaller = [medium](const CreationInputs& a, const CreationInputs& b) {
    return a.slot_bytes[medium] < b.slot_bytes[medium];
  };
  const auto least = std::min_element(all.begin(), all.end(), smaller);
  const Index slot = least->slot_bytes[medium];
  if (slot < 0) {
    plan_.slot_bytes = std::min(plan_.slot_bytes, plans.min_slot_bytes);
    return refuse(
        {Errc::over_budget,
         fmt::format("{} needs {} bytes for its smallest slots on rank {} (its budget is {}, of "
                     "which {} are used); raise CCL_MEMORY_BUDGET or drop a composition",
                     name_, bytes_of(plan_), least - all.begin(), least->budget, least->used),
         -1, int(least - all.begin())});
  }
  if (slot < plan_.slot_bytes) {
    log_info(LogPart::init, "{}: slots of {} bytes instead of {}, to fit the memory budget", name_,
             slot, plan_.slot_bytes);
  }
  plan_.slot_bytes = slot;
  return {};
}

}  // namespace ccl::detail
