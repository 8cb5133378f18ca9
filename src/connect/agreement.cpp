#include "connect/agreement.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "base/field_check.hpp"
#include "comm/part_rules.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "settings/report.hpp"

namespace ccl::detail {

namespace {
/// Numbers of a plan that no wire holds. Ranks that differ in one would cut a message into
/// different steps.
struct PlanSignature {
  int channels = 0;  // 0 on a GPU, because ranks with peer memory need not agree
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

/// Bounds of a rank's channels, which explain plans that differ; 0: none.
struct ChannelLimits {
  std::int32_t least = 0, most = 0;
};

/// Inputs of one rank, gathered by all.
struct CreationInputs {
  Index medium = 0;  // medium of its most expensive edge
  // Largest slots that fit, one for each plan; -1: even the smallest do not fit.
  std::array<Index, 3> slot_bytes{};
  std::array<PlanSignature, 3> rounds{};  // one for each plan
  ChannelLimits limits;
  Index budget = 0, used = 0;
  int connects_on_demand = 0;  // flags are integers, because other ranks send them
  double idle_s = 0;           // seconds after which an idle pair closes; 0: never
  int checks = 0;              // 1: compares its calls with the other ranks' calls
  int code = 0;                // Errc of the plans of this rank
  char name[160]{};
};

std::string wrong_inputs(const CreationInputs& inputs) {
  FieldCheck check;
  check.in_range("medium", inputs.medium, int(Medium::gpu_memory), int(Medium::network))
      .flag("connection on demand", inputs.connects_on_demand)
      .flag("comparison of calls", inputs.checks)
      .require(std::isfinite(inputs.idle_s) && inputs.idle_s >= 0,
               "time after which a connection is idle is no number of seconds")
      .text("name of the composition", inputs.name)
      .in_range("fewest channels", inputs.limits.least, 0, std::numeric_limits<std::int32_t>::max())
      .in_range("most channels", inputs.limits.most, 0, std::numeric_limits<std::int32_t>::max())
      .in_range("error code", inputs.code, int(Errc::ok), int(last_errc));
  for (const Index slot : inputs.slot_bytes) {
    check.in_range("bytes of a slot", slot, -1, std::numeric_limits<Index>::max());
  }
  return check.why();
}

/// Examines this rank's edges. Enters the most expensive medium into `mine`, and the memory of the
/// edges' slots into `agreed`.
void look_at_edges(const CommState& state, const TransportTable& transport_table,
                   CreationInputs& mine, AgreedPlan& agreed) {
  const PeerInfo& self = state.identity.peers()[std::size_t(state.identity.rank())];
  int networked = 0;
  for (const PeerInfo& peer : state.identity.peers()) {
    if (peer.rank == state.identity.rank()) continue;
    const Medium in = transport_table.edge_transport(peer, self).medium;
    const Medium out = transport_table.edge_transport(self, peer).medium;
    mine.medium = std::max({mine.medium, Index(in), Index(out)});
    if (state.device.gpu && in == Medium::gpu_memory) agreed.holds_slots = true;
    networked += int(out == Medium::network);
  }
  // Wires over a network have slots at both ends, in memory of the GPU or of its host.
  agreed.fan += std::min(agreed.fan, networked);
}

/// Wires of a head to a network that reduces, whose slots lie with it.
constexpr int network_wires = 2;

/// Shrinks the slots of each plan until this composition takes at most its part of the budget.
void fit_slots(const CommState& state, const Plans& plans, int fan, CreationInputs& mine) {
  const bool given = state.identity.config().memory_budget_bytes.has_value();
  const Index part = part_of_budget(state.limits.budget, given);
  mine.budget = state.limits.budget;
  mine.used = state.limits.used.load();
  const Index left = std::min(part, mine.budget - mine.used);
  for (std::size_t n = 0; n < plans.by_medium.size(); ++n) {
    Plan plan = plans.by_medium[n];
    while (plan.slot_bytes / 2 >= plans.min_slot_bytes && slot_memory(plan, fan) > left) {
      plan.slot_bytes = plan.slot_bytes / 2 / 128 * 128;
    }
    mine.slot_bytes[n] = slot_memory(plan, fan) > left ? -1 : plan.slot_bytes;
    mine.rounds[n] = {state.device.gpu ? 0 : plan.channels, plan.slice_steps, plan.chunk_steps,
                      plan.channel_bytes};
  }
}

/// Fails if the ranks create different compositions, or if only some of them compare calls.
Result<void> compare_ranks(CommState& state, const std::vector<CreationInputs>& all) {
  const int me = state.identity.rank();
  const CreationInputs& mine = all[std::size_t(me)];
  // A rank that compares calls would wait without end for a rank that does not. Comes first,
  // because `Auto` creates other candidates where it compares.
  for (int r = 0; r < state.identity.ranks(); ++r) {
    if (all[r].checks == mine.checks) continue;
    return state.rendezvous.disagree(
        fmt::format("rank {} {} calls between ranks, rank {} {} (CCL_CHECK or Config::check "
                    "differs); set it alike on all ranks",
                    r, all[r].checks ? "compares" : "does not compare", me,
                    mine.checks ? "does" : "does not"),
        r);
  }
  for (int r = 0; r < state.identity.ranks(); ++r) {
    if (std::string_view{all[r].name} == mine.name) continue;
    return state.rendezvous.disagree(
        fmt::format("rank {} creates {} where rank {} creates {} (all ranks must create the same "
                    "compositions in the same order)",
                    r, all[r].name, me, mine.name),
        r);
  }
  return {};
}

/// Error: rank `r` has another plan for this medium. Names the settings that make the difference.
Error plans_differ(const std::string& name, const std::vector<CreationInputs>& all,
                   std::size_t medium, int me, int r) {
  const CreationInputs &own = all[std::size_t(me)], &theirs = all[std::size_t(r)];
  const PlanSignature &mine = own.rounds[medium], &other = theirs.rounds[medium];
  const auto bound = [&](const char* setting, const char* member, int at_me, int at_other) {
    const auto value = [](int v) { return v > 0 ? fmt::format("{}", v) : std::string{"not set"}; };
    return fmt::format(" ({} or Config::{} is {} on rank {} and {} on rank {})",
                       variable_of(setting), member, value(at_other), r, value(at_me), me);
  };
  std::string why;
  if (mine.channels == other.channels) {
    // No setting makes the difference.
  } else if (own.limits.least != theirs.limits.least) {
    why = bound("MIN_CTAS", "min_channels", own.limits.least, theirs.limits.least);
  } else if (own.limits.most != theirs.limits.most) {
    why = bound("MAX_CTAS", "max_channels", own.limits.most, theirs.limits.most);
  } else {
    why = fmt::format(" ({} or the plan differs)", variable_of("NCHANNELS_PER_NET_PEER"));
  }
  return {Errc::mismatch,
          fmt::format("rank {} plans {} with {} where rank {} plans {}{}; give the same plan "
                      "and settings on all ranks",
                      r, name, text_of(other), me, text_of(mine), why),
          -1, r};
}

/// Completes `agreed` with the plan of the most expensive medium and the smallest slots of all
/// ranks.
Result<void> choose(CommState& state, const std::string& name, const Plans& plans,
                    const std::vector<CreationInputs>& all, AgreedPlan& agreed) {
  const int me = state.identity.rank();
  std::size_t medium = 0;
  for (const CreationInputs& of : all) {
    medium = std::max(medium, std::size_t(of.medium));
    agreed.connects_on_demand = agreed.connects_on_demand && of.connects_on_demand != 0;
    const bool never = of.idle_s == 0 || agreed.idle_s == 0;
    agreed.idle_s = never ? 0 : std::max(agreed.idle_s, of.idle_s);
  }
  Plan& plan = agreed.plan = plans.by_medium[medium];
  const auto refuse = [&](Error error) {            // fails on all ranks
    (void)state.rendezvous.bootstrap()->barrier();  // a rank leaves only after all have the error
    return fail(state.annotate(std::move(error)));
  };
  for (int r = 0; r < state.identity.ranks(); ++r) {
    if (all[r].rounds[medium] == all[me].rounds[medium]) continue;
    return refuse(plans_differ(name, all, medium, me, r));
  }
  const auto smaller = [medium](const CreationInputs& a, const CreationInputs& b) {
    return a.slot_bytes[medium] < b.slot_bytes[medium];
  };
  const auto least = std::min_element(all.begin(), all.end(), smaller);
  const Index slot = least->slot_bytes[medium];
  if (slot < 0) {
    plan.slot_bytes = std::min(plan.slot_bytes, plans.min_slot_bytes);
    return refuse(
        {Errc::over_budget,
         fmt::format("{} needs {} bytes for its smallest slots on rank {} (its budget is {}, of "
                     "which {} are used); raise CCL_MEMORY_BUDGET or drop a composition",
                     name, slot_memory(plan, agreed.fan), least - all.begin(), least->budget,
                     least->used),
         -1, int(least - all.begin())});
  }
  if (slot < plan.slot_bytes) {
    log_info(LogPart::init, "{}: slots of {} bytes instead of {}, to fit the memory budget", name,
             slot, plan.slot_bytes);
  }
  plan.slot_bytes = slot;
  return {};
}

}  // namespace

Result<AgreedPlan> agree_on_plan(const Communicator& comm, const Result<Plans>& wanted,
                                 const PlanRequest& request) {
  CommState& state = *Access::state(comm);
  const std::string& name = request.name;
  const Plans plans = wanted ? *wanted : Plans{};
  const Result<void> planned = wanted ? Result<void>{} : fail(wanted.error());
  AgreedPlan agreed{Plan{}, request.fan, false, request.connects_on_demand, request.idle_s};
  std::vector<CreationInputs> all(std::size_t(state.identity.ranks()));
  CreationInputs& mine = all[std::size_t(state.identity.rank())];
  mine.code = planned ? 0 : int(planned.error().code);
  name.copy(mine.name, sizeof mine.name - 1);
  mine.connects_on_demand = int(request.connects_on_demand && !state.device.gpu);
  mine.idle_s = request.idle_s;
  mine.checks = int(state.limits.check);
  mine.limits = {state.limits.bounds.least.value_or(0), state.limits.bounds.most.value_or(0)};
  look_at_edges(state, request.transport_table, mine, agreed);
  if (request.has_network) agreed.fan = request.fan + network_wires;
  fit_slots(state, plans, agreed.fan, mine);
  const auto lock = state.rendezvous.lock();
  CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index{sizeof(CreationInputs)}, {}, {"the creation of", name})));
  CCL_CHECK(
      check_gathered(state, all, [](const CreationInputs& of, int) { return wrong_inputs(of); }));
  CCL_CHECK(compare_ranks(state, all));
  const auto well = [](const CreationInputs& of) { return of.code == 0; };
  if (!std::all_of(all.begin(), all.end(), well)) {
    CCL_CHECK(first_failure(state, name, planned));
  }
  CCL_CHECK(choose(state, name, plans, all, agreed));
  return agreed;
}

Result<void> agree_on_result(const Connections& connections, const Result<void>& mine) {
  CommState& state = *Access::state(connections.comm());
  const auto lock = state.rendezvous.lock();
  return all_agree(state, connections.name(), mine);
}

}  // namespace ccl::detail
